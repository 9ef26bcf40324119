# SPDX-License-Identifier: MIT
"""Writes docs/commands.md, actions.md, backend-api.md, errors.md, metrics.md, reference-keys.md, the tables of keys, in
slurm.md that of generations and, in architecture.md, the list of modules from the code: `make docs`. A test holds them
to it.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import runpy
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path

import click

from agent.cli.main import COMMANDS, cli
from agent.config.keys import table
from agent.core import errors
from agent.core.plans import action_classes
from agent.observability.metrics import METRICS, Origin
from backends import base

FOLDER = Path(__file__).parent
MODULES = "## Every module\n"
REFERENCE = runpy.run_path(str(FOLDER / "reference_keys.py"))
GENERATIONS = runpy.run_path(str(FOLDER.parent / "tests/backends/slurm/facts.py"))


def commands() -> str:
    """The help of every command, as the operator sees it."""
    context = click.Context(cli, info_name="waldur-site-cluster", terminal_width=100, **cli.context_settings)
    parts = ["# Commands", "", "Made by `make docs` from the commands' own help.", ""]
    parts += ["```", cli.get_help(context), "```", ""]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        # click keeps the option that it makes first, and another context may have had other names for it.
        command._help_option = None
        inner = click.Context(
            command, info_name=name, parent=context, terminal_width=100, **cli.context_settings
        )
        parts += [f"## {name}", "", "```", command.get_help(inner), "```", ""]
    return "\n".join(parts)


def actions() -> str:
    """What a plan can hold."""
    parts = [
        "# Actions",
        "",
        "What a plan can hold, as `plan --json` and the log name it. Made by `make docs` from the code.",
        "What an action can cost people counts against the [budgets](configuration.md#budgets).",
        "",
        "| action | in words | where | effect | can cost | meaning |",
        "|---|---|---|---|---|---|",
    ]
    # By module: which one was imported first is not the same in every program.
    for name, kind in sorted(action_classes().items(), key=lambda item: item[1].__module__):
        if not kind.__module__.startswith("agent."):
            continue  # a third party's, or a test's
        meaning = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        meaning = "" if meaning.startswith(f"{name}(") else meaning
        costs = ", ".join(f"`{cost}`" for cost in sorted(kind.costs))
        parts.append(f"| `{name}` | {kind.verb} | {kind.where} | {kind.effect} | {costs} | {meaning} |")
    return "\n".join(parts) + "\n"


def error_kinds() -> str:
    """What becomes of the work after each kind of error."""
    parts = [
        "# Errors",
        "",
        "The kinds of errors, as the code knows them: they decide what becomes of the work. What a message means, and",
        "what to do: [troubleshooting](troubleshooting.md). Made by `make docs` from the code.",
        "",
        "*Tried again*: a task comes back after 5, 10, 20 … 120 s, ten times, and with every pass; a command of yours",
        "ends with exit code 1. *Of the host*: the host, its rights or settings are at fault: it fails no order.",
        "",
        "| kind | is a | tried again | of the host | meaning |",
        "|---|---|---|---|---|",
    ]
    for kind in _below(errors.SiteAgentError):
        above = kind.__bases__[0].__name__
        again = "yes" if kind.retryable else "no"
        if issubclass(kind, errors.WaldurError):
            again = "yes" if kind is errors.WaldurAnswerError else "no answer, 429 and 5xx"
        elif issubclass(kind, errors.CommandFailed):
            again = "when its words mean an outage"
        host = "yes" if getattr(kind, "of_host", False) else ""
        meaning = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()).replace("|", "\\|")
        parts.append(f"| `{kind.__name__}` | `{above}` | {again} | {host} | {meaning} |")
    parts += ["", "## Exit codes of commands", "", "| code | meaning |", "|---|---|"]
    parts += [
        "| 0 | done; a plan that is held is no failure |",
        "| 1 | something needs a look: the lines on stderr say what |",
    ]
    parts += [
        "| 2 | the command line or the configuration is wrong, or no offering has a backend for the mode |"
    ]
    parts += [
        "| 3 | with `--exit-code`: there is something to do, or something differs |",
        "| 130 | Ctrl-C |",
    ]
    return "\n".join(parts) + "\n"


def _below(kind: type[errors.SiteAgentError]) -> Iterator[type[errors.SiteAgentError]]:
    """The kinds of agent.core.errors, each below the one it belongs to."""
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from _below(each)


def metrics() -> str:
    """Return the page of what Prometheus can read."""
    parts = [
        "# Metrics",
        "",
        "Made by `make docs` from the code. [Monitoring](monitoring.md) says how to read them. Moments are seconds",
        "since 1970: `time() - x` is an age. Labels `offering` are UUIDs; `waldur_site_offering_info` has their names.",
        "",
    ]
    told_by = {
        Origin.HEAD_NODE: ("Of each head node", "By `metrics`, from the state file and the heartbeats."),
        Origin.BROKER: ("Of the queues", "By `metrics` as well, where the broker is Redis."),
        Origin.BRIDGE: ("Of the bridge", "By `bridge --metrics HOST:PORT`."),
    }
    for origin, (title, who) in told_by.items():
        parts += [f"## {title}", "", who, "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        parts += [
            f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} "
            f"| {metric.meaning} |"
            for metric in METRICS.values()
            if metric.origin is origin
        ]
        parts.append("")
    return "\n".join(parts)


TABLE = re.compile(r"(<!-- (key|variable)s: (\S+) -->\n)\n?(?:\|.*\n)*")


def with_tables(page: Path) -> str:
    """Return a page with the tables of keys and variables after the comments that name their dataclasses."""

    def made(match: re.Match[str]) -> str:
        return "\n".join([match[1], *table(pkgutil.resolve_name(match[3]), match[2].capitalize()), ""])

    return TABLE.sub(made, page.read_text(encoding="utf-8"))


def architecture() -> str:
    """The page as it is written by hand, with the list of all modules at its end."""
    written = (FOLDER / "architecture.md").read_text().partition(MODULES)[0]
    parts = [MODULES, "Made by `make docs`; each module says in its first line what it is.", ""]
    parts += ["| room | what | modules |", "|---|---|---|"]
    repository = FOLDER.parent
    rooms = (
        path
        for root in ("agent", "backends", "simulator", "tasks")
        for path in (repository / root).rglob("*.py")
    )
    for room in sorted({path.parent for path in rooms}):
        meaning = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
        what = " ".join(meaning.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
        modules = ", ".join(f"`{path.stem}`" for path in sorted(room.glob("*.py")) if path.stem != "__init__")
        parts.append(f"| `{room.relative_to(repository)}` | {what} | {modules} |")
    return written + "\n".join(parts) + "\n"


API_GROUPS = (
    ("The backend", "Every backend has these.", ("Backend",)),
    (
        "Optional powers",
        "Each is a protocol of its own; the agent finds it with `isinstance`.",
        ("UsageReader", "UsageCounter", "UsageCount", "ChargeReader", "LateUsage", "JobReader", "UsageCheck", "Paced",
         "KeyPower", "KeyKeeper", "PeriodicPower", "PeriodicKeeper", "ClusterChecks", "Forewarning"),
    ),
    ("What the agent gives", "", ("BackendContext", "Scope", "Reread")),
    (
        "The plugin",
        "What the entry point names.",
        ("Plugin", "ComponentRules", "HasComponentKeys", "UserHomes", "KeysWithoutEffect", "FindsClusters"),
    ),
    ("What a plugin returns", "", ("Parsed", "KnownComponents", "FoundCluster", "MadeKey")),
)  # fmt: skip


def backend_api() -> str:
    """Return the page of the protocols of a backend, from their docstrings."""
    parts = [
        "# Backend API",
        "",
        "What a [backend](write-a-backend.md) has and gets: the types of `backends/base.py`, with what they must keep.",
        "Made by `make docs` from the code.",
        "",
    ]
    for title, introduction, names in API_GROUPS:
        parts += [f"## {title}", "", *([introduction, ""] if introduction else [])]
        for name in names:
            parts += _api_of(getattr(base, name))
    return "\n".join(parts)


def _api_of(kind: type) -> Iterator[str]:
    """Yield the lines of one protocol or dataclass: fields with the comments above them, methods with docstrings."""
    yield from (f"### {kind.__name__}", "", _paragraph(kind), "")
    source = inspect.getsource(kind)
    for field in fields(kind) if is_dataclass(kind) else ():
        above = re.search(rf"((?:^    #.*\n)*)^    {field.name}:", source, re.MULTILINE)
        comment = " ".join(re.sub(r"^    #", "", above[1], flags=re.MULTILINE).split()) if above else ""
        yield f"- `{field.name}: {field.type}`" + (f": {comment}" if comment else "")
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        words = "" if isinstance(member, property) else _signature(function)
        yield f"- `{name}{words}`" + (f": {_paragraph(function)}" if function.__doc__ else "")
    yield ""


def _signature(function: Callable[..., object]) -> str:
    """Return parameters and result with their types; a parameter with a default has `= ...`."""
    signature = inspect.signature(function)
    parameters = [
        f"{each.name}: {each.annotation}" + ("" if each.default is each.empty else " = ...")
        for each in signature.parameters.values()
        if each.name != "self"
    ]
    return f"({', '.join(parameters)}) -> {signature.return_annotation}"


def _paragraph(documented: object) -> str:
    """Return a docstring as one paragraph."""
    return " ".join((inspect.getdoc(documented) or "").split()).replace("|", "\\|")


FACTS = re.compile(r"(<!-- facts -->\n)\n?(?:\|.*\n)*")


def slurm() -> str:
    """The page as it is written by hand, with the table of what the tests run on each generation of SLURM."""
    rows = "".join(f"{line}\n" for line in GENERATIONS["page"]())
    return FACTS.sub(lambda match: match[1] + rows, (FOLDER / "slurm.md").read_text(encoding="utf-8"))


PAGES = {
    **{
        page.name: partial(with_tables, page)
        for page in sorted(FOLDER.glob("*.md"))
        if TABLE.search(page.read_text(encoding="utf-8"))
    },
    "architecture.md": architecture,
    "commands.md": commands,
    "actions.md": actions,
    "backend-api.md": backend_api,
    "errors.md": error_kinds,
    "metrics.md": metrics,
    "reference-keys.md": REFERENCE["page"],
    "slurm.md": slurm,
}

if __name__ == "__main__":
    for page, text in PAGES.items():
        (FOLDER / page).write_text(text(), encoding="utf-8")
