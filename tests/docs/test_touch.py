# SPDX-License-Identifier: MIT
"""What the page on architecture says one has to touch to add something, held against the code as it is."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import click
import pytest

from agent.cli.commands import reference
from agent.cli.commands.shared import LazyCommand
from agent.cli.main import COMMANDS, cli
from agent.config import keys, schema
from agent.config.field_types import choice
from agent.config.findings import Findings
from agent.config.keys import key
from agent.config.reading import read
from agent.config.schema import OfferingKeys
from agent.core.events import JobKind, ObjectType
from agent.core.plans import action_classes
from agent.run import engine, passes
from agent.state import hints
from agent.waldur.actions import REQUESTS
from backends import base
from tests import REPOSITORY

# Tests make kinds of their own.
OURS = {name: kind for name, kind in action_classes().items() if kind.__module__.startswith("agent.core.")}
PAGE = (REPOSITORY / "docs/architecture.md").read_text()


def table() -> Mapping[str, str]:
    """The rows of the table, what to what files."""
    part = PAGE[PAGE.index("To add one of these, touch") :]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", part[: part.index("\n## ")], re.MULTILINE)
    return dict(rows[2:]) if rows[0][0] == "what" and set(rows[1][0]) <= {"-"} else dict(rows[1:])


@cache
def sources() -> Mapping[str, str]:
    files = (p for room in ("agent", "backends", "tasks") for p in (REPOSITORY / room).rglob("*.py"))
    return {str(path.relative_to(REPOSITORY)): path.read_text() for path in files}


@cache
def words() -> Mapping[str, frozenset[str]]:
    return {path: frozenset(re.findall(r"\w+", text)) for path, text in sources().items()}


def naming(word: str) -> list[str]:
    """The files of the product that name something."""
    return [path for path, named in words().items() if word in named]


def test_every_row_is_walked() -> None:
    assert list(table()) == [
        "an action on the cluster",
        "an action on Waldur",
        "a kind of provisioning",
        "an event",
        "a key of the configuration",
        "a command",
        "a power of a backend",
        "a policy rule that refuses",
        "a cost with a budget",
        "a hint",
    ]


def test_every_file_that_the_table_names_is_there() -> None:
    for files in table().values():
        for name in re.findall(r"`([\w/*]+(?:\.py|/))`", files):
            root = REPOSITORY if name.startswith(("backends/", "tasks/", "docs/")) else REPOSITORY / "agent"
            assert list(root.glob(name)), name


@pytest.mark.parametrize("name", sorted(name for name, kind in OURS.items() if kind.where == "cluster"))
def test_an_action_on_the_cluster(name: str) -> None:
    """It is declared once, planned, and carried out by a backend, or by a power of one that its mode asks for."""
    files = naming(name)
    declared = [path for path in files if re.search(rf"^class {name}\b", sources()[path], re.MULTILINE)]
    assert re.fullmatch(r"agent/core/\w*actions\.py", declared[0])
    assert [path for path in files if path.startswith("agent/plan/")] != []
    assert [path for path in files if path.startswith(("backends/", "agent/run/keys/api_keys.py"))] != []
    unrelated = ("agent/cli/", "agent/state/", "agent/waldur/", "agent/config/", "tasks/")
    assert [path for path in files if path.startswith(unrelated)] == []


# Their request needs what only their mode has: a key's secret, a person's state, a month's records, who this agent is.
OF_A_MODE = {
    "ReportMetadata", "ReportKey", "ReportKeyUsage", "ReportUsage", "ReportUserUsage", "RegisterAgent", "RenewService",
    "BeginUsername", "AssignUsername", "CompleteValidation", "AskAccountLinking", "AskValidation", "FailUsername",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(name for name, kind in OURS.items() if kind.where == "Waldur"))
def test_an_action_on_waldur(name: str) -> None:
    files = naming(name)
    assert [path for path in files if re.fullmatch(r"agent/core/\w*actions\.py", path)] != []
    assert [path for path in files if path.startswith(("agent/plan/", "agent/run/"))] != []
    areas = [path for path in files if path.startswith("agent/waldur/")]
    assert (action_classes()[name] in REQUESTS, len(areas)) == (
        (False, 0) if name in OF_A_MODE else (True, 1)
    )
    assert [path for path in files if path.startswith(("backends/slurm", "backends/moab", "tasks/"))] == []


@pytest.mark.parametrize("kind", sorted({k for modes in passes.LISTS.values() for k in modes}, key=str))
def test_a_kind_of_provisioning(kind: type) -> None:
    """A mode is known to its own file and to the lists."""
    own = kind.__module__.replace(".", "/") + ".py"
    files = [path for path in naming(kind.__name__) if f"import {kind.__name__}" in sources()[path]]
    named = re.compile(rf"from {re.escape(kind.__module__)} import [^\n]*\b{kind.__name__}\b")
    importing = [path for path in files if named.search(sources()[path])]
    assert importing == ["agent/run/passes.py"], own


LISTS = {name for name, value in vars(passes).items() if value in passes.LISTS.values()} | {"LISTS"}
COMPOSED_IN = ("agent/run/passes.py", "agent/run/engine.py")


def modes(kind: type = engine.Mode) -> Iterator[str]:
    """The names of all modes of the product: those of the lists, and what a person or an event asks for alone."""
    for each in kind.__subclasses__():
        if each.__module__.startswith("agent."):
            yield from [each.__name__] if "key" in vars(each) or not each.__subclasses__() else []
            yield from modes(each)


def named_in(source: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What a file imports from where, and what it names of what: `engine.walk`."""
    nodes = list(ast.walk(ast.parse(source)))
    imports = [each for each in nodes if isinstance(each, ast.ImportFrom)]
    attributes = [each for each in nodes if isinstance(each, ast.Attribute)]
    return (
        [(each.module or "", alias.name) for each in imports for alias in each.names],
        [(each.value.id, each.attr) for each in attributes if isinstance(each.value, ast.Name)],
    )


def test_a_pass_is_composed_in_one_file() -> None:
    """No other names a list or walks one, knows two modes of other files, or runs more than one."""
    known = set(modes())
    assert len(known) > 15
    for path in sources().keys() - set(COMPOSED_IN):
        imported, used = named_in(sources()[path])
        lists = {name for of, name in (*imported, *used) if of in ("agent.run.passes", "passes")}
        assert lists.isdisjoint(LISTS), path
        foreign = {name for module, name in imported if module.startswith("agent.run")}
        assert len(foreign & known) <= 1, path
        assert ("engine", "walk") not in used, path
        runs = [name for of, name in used if of == "engine" and name in ("reconcile", "run_optional")]
        assert len(runs) <= 1, path


@pytest.mark.parametrize("event", ObjectType, ids=str)
def test_an_event(event: ObjectType) -> None:
    word = f"ObjectType.{event.name}"
    found = [path for path, text in sources().items() if re.search(rf"{re.escape(word)}\b", text)]
    assert "agent/bridge/decode.py" in found
    assert set(found) <= {
        "agent/bridge/decode.py",
        "agent/run/service/event_coverage.py",
        "agent/run/service/services.py",
    }


@pytest.mark.parametrize("job", JobKind, ids=str)
def test_a_kind_of_job(job: JobKind) -> None:
    assert "tasks/events.py" in [
        p for p, text in sources().items() if re.search(rf"JobKind\.{job.name}\b", text)
    ]


@dataclass(frozen=True)
class WithOneMore(OfferingKeys):
    site_motto: str = key("none", "what the site says", of=choice("none", "more light"))


def test_a_key_of_the_configuration() -> None:
    """One declaration: it is checked, documented, in the JSON Schema and in the catalogue, and known to its reader."""
    findings = Findings()
    wrong = read(WithOneMore, {"name": "One", "site_motto": "loud", "site_moto": 1}, "o", findings)
    assert wrong.site_motto == "none"
    found = {problem.path: problem.message for problem in findings.problems}
    assert found["o.site_motto"] == "`site_motto` is 'loud'; use one of none, more light"
    assert found["o.site_moto"] == "unknown key 'site_moto'; did you mean 'site_motto'?"
    assert "| `site_motto` | `none` | what the site says |" in list(keys.table(WithOneMore, "Key"))
    assert keys.json_schema(WithOneMore)["properties"]["site_motto"] == {
        "enum": ["none", "more light", None],
        "default": "none",
        "description": "what the site says",
    }
    declared = {
        name: kind.__module__.replace(".", "/") + ".py"
        for kind in vars(schema).values()
        if isinstance(kind, type) and kind.__module__ == schema.__name__
        for name in keys.keys_of(kind)
    }
    assert len(declared) > 100
    # What checks, documents and exports keys names none of them, but where a map of other keys stands.
    tellers = {f"agent/config/{name}.py" for name in ("keys", "reading", "findings", "field_types")}
    tellers |= {"agent/cli/config_schema.py", "agent/cli/catalogue.py", "agent/cli/config_check.py"}
    maps = {"backend_settings", "backend_components", "offerings", "periodic_limits"}
    for name in declared.keys() - maps - {"name", "description"}:  # words of the catalogue and of JSON Schema
        assert [path for path in tellers if f'"{name}"' in sources()[path]] == [], name


def lazy_commands(command: click.Command) -> Iterator[LazyCommand]:
    """Yield a command, or those of a group."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from lazy_commands(each)
    elif isinstance(command, LazyCommand):
        yield command


OF_THE_REFERENCE = [each for each in vars(reference).values() if isinstance(each, LazyCommand)]


@pytest.mark.parametrize(
    "command", [*lazy_commands(cli), *OF_THE_REFERENCE], ids=lambda command: command.body
)
def test_a_command(command: LazyCommand) -> None:
    """What carries it out takes the arguments and options that are declared."""
    module, _, function = command.body.partition(":")
    assert f"{module.replace('.', '/')}.py" in sources()
    body = getattr(importlib.import_module(module), function or "command")
    inspect.signature(body).bind(**{str(parameter.name): None for parameter in command.params})


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_on_commands(name: str) -> None:
    assert f"\n## {name}\n" in (REPOSITORY / "docs/commands.md").read_text()


def test_a_power_of_a_backend() -> None:
    powers = [n for n in vars(base) if n.endswith("Power") and n[0].isupper()]
    assert powers != []
    for power in powers:
        assert [path for path in naming(power) if path.startswith("agent/run/")] != [], power


@pytest.mark.parametrize("name", sorted(name for name, each in vars(hints).items() if each in hints.HINTS))
def test_a_hint(name: str) -> None:
    """It is in the list of kinds, it is used, and the page on the state file lists it."""
    assert [path for path in naming(name) if path != "agent/state/hints.py"] != []
    assert f"\n| `{getattr(hints, name).kind}` |" in (REPOSITORY / "docs/state.md").read_text()
