# SPDX-License-Identifier: MIT
"""Every command that a document shows: it exists with its options, and those of ours run on a prepared site.

A new command of ours in a page is run here. Where it cannot be, say so in `NOT_RUN`; where it shall end with another
code than 0, in `ENDS_WITH`; a placeholder that it needs goes into `prepared`.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import click
import pytest
import yaml

from agent.cli.main import COMMANDS, cli, run
from agent.host import unit_files
from rig.emulator import emulated_cluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests import REPOSITORY
from tests.agent.cli.conftest import command as command
from tests.agent.cli.operator_site import Ended, OperatorSite
from tests.docs import shell_blocks
from tests.docs.shell_blocks import DocumentedCommand

GENERATED = {"commands.md", "reference-keys.md", "actions.md", "metrics.md"}
PAGES = sorted(
    [*(REPOSITORY / "docs").glob("*.md"), REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]
)
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
OLD_UNITS = {f"{name}.service" for unit in unit_files.OLD_UNITS for name in unit.names}
OURS = ("waldur-site-cluster", "manage.py", "celery")

# Commands that stay in the foreground, or need what only their own tests prepare: their words are parsed.
NOT_RUN = {
    "init": "finds this host's cluster, and writes into /etc; tests/agent/cli/test_init.py runs it",
    "unit-files": "writes into /etc; tests/agent/cli/test_wheel.py runs it",
    "bridge": "stays in the foreground",
    "cluster": "stays in the foreground",
    "simulate": "stays in the foreground",
    "demo": "stays in the foreground; tests/agent/cli/test_demo.py runs it",
    "console": "stays in the foreground; tests/agent/cli/web runs it",
    "create-homedirs": "makes homes on this machine; tests/agent/cli/test_create_homedirs.py runs it",
    "metrics": "stays in the foreground with --serve; tests/agent/observability/test_metrics.py runs it",
    "events": "needs messages of a bridge; tests/agent/bridge runs it",
}
# Exit codes on the site of `prepared`, where they are not 0.
ENDS_WITH: Mapping[str, int] = {
    "doctor": 1,  # no broker
    "diagnose-account a_one -v": 1,  # leavers wait for an approval
    "explain ffrost5 a_one": 1,  # one of them
    "healthz": 1,  # nothing runs
}
# What belongs to the machine: checked by nothing but the eye.
OF_THE_MACHINE = {
    "apt", "apt-get", "cd", "chmod", "chown", "cp", "cat", "curl", "dnf", "docker-compose", "gpasswd", "install",
    "journalctl", "less", "ln", "ls", "mkdir", "mv", "openssl", "redis-cli", "rm", "sed", "sqlite3", "su", "tail",
    "tar", "tee", "test", "useradd", "usermod", "visudo", "yum", "groupadd", "sacctmgr", "scontrol",
    "sacct", "sdiag", "slurmctld", "slurmdbd", "mysqldump", "mysql", "date", "chronyc", "promtool", "grep", "git",
    "systemd-sysusers", "systemd-tmpfiles",
}  # fmt: skip


def words_of_pages() -> list[DocumentedCommand]:
    return [documented for page in PAGES for documented in shell_blocks.of_document(page)]


def words_in_sentences() -> list[DocumentedCommand]:
    """`plan report` in a sentence is a command, too; a word alone may be anything."""
    pages = [page for page in PAGES if page.name != "commands.md"]
    named = [documented for page in pages for documented in shell_blocks.inline(page, (*OURS, *COMMANDS))]
    return [documented for documented in named if documented.words[0] in OURS or _is_no_message(documented)]


def _is_no_message(documented: DocumentedCommand) -> bool:
    return "…" not in " ".join(documented.words) and bool(
        re.match(r"-|[A-Z]+$|[a-z_-]+$", documented.words[1])
    )


def parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Let click's own parser read the words: options, sub-commands and choices have to exist; runs nothing."""
    # With its own settings: click keeps the option for help that it makes first, and other tests print it.
    context = click.Context(command, parent=parent, info_name=command.name, **command.context_settings)
    values, rest, _ = command.make_parser(context).parse_args(words)
    if isinstance(command, click.Group):
        if rest:
            inner = command.get_command(context, rest[0])
            assert inner is not None, f"there is no command {rest[0]}"
            parse(inner, rest[1:], context)
        return
    assert rest == [], f"one word too many: {rest}"
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if isinstance(parameter.type, click.Choice) and isinstance(value, str) and not value.isupper():
            assert value in parameter.type.choices, f"{value} is none of {parameter.type.choices}"


def check_words(words: list[str]) -> None:
    """Find whether a simple command can be what it says: each program has its own way to be looked up."""
    program, rest = os.path.basename(words[0]), words[1:]
    if program in ("python", "python3") and rest[:1] == ["manage.py"]:
        program, rest = "manage.py", rest[1:]
    if program in PROGRAMS:
        PROGRAMS[program](rest)
    elif program in PROJECT["project"]["scripts"]:
        assert "." not in program  # a script of the reference: tests/agent/cli runs it by its name
    else:
        assert program in OF_THE_MACHINE, f"{program} is no program that tests/docs/test_commands.py knows"
        for word in rest:
            if (
                word.startswith(("systemd/", "systemd-conf/", "examples/", "docs/", "rig/"))
                and "*" not in word
            ):
                assert (REPOSITORY / word).exists(), word


def _own(words: list[str]) -> None:
    parse(cli, words)


def _celery(words: list[str]) -> None:
    # Imported here: with all its plugins, its import takes 0.3 s of each process that collects the tests.
    from celery.bin.celery import celery

    assert "tasks" in words[: words.index("-A") + 2]
    parse(celery, words)


def _systemctl(words: list[str]) -> None:
    ours = {unit.name for unit in (REPOSITORY / "systemd").iterdir()} | OLD_UNITS
    for word in words:
        if not word.startswith("waldur-"):
            continue
        name = word if "." in word else f"{word}.service"
        template = re.sub(r"@[^.]*\.", "@.", name)
        assert {name, template} & ours, f"there is no unit {word}"


def _docker(words: list[str]) -> None:
    assert words[0] in ("compose", "build", "run", "exec"), words
    document = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
    if words[0] != "compose":
        return
    profiles = {
        profile for service in document["services"].values() for profile in service.get("profiles", [])
    }
    for option, value in pairwise(words):
        if option == "--profile":
            assert value in profiles, f"there is no profile {value}"
    # `exec SERVICE COMMAND`, `run SERVICE COMMAND`: the service is the first word that is no option.
    verb = next((word for word in words[1:] if word in ("exec", "run", "logs", "restart", "stop")), None)
    if verb:
        services = [word for word in words[words.index(verb) + 1 :] if not word.startswith("-")]
        assert not services or services[0] in document["services"], f"there is no service {services[0]}"


def _pip(words: list[str]) -> None:
    for word in words:
        name, _, extras = word.partition("[")
        if name == PROJECT["project"]["name"] and extras:
            for extra in extras.rstrip("]").split(","):
                assert extra in PROJECT["project"]["optional-dependencies"], f"there is no extra {extra}"


def _make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert {word for word in words if "=" not in word} <= set(targets)


def _python(words: list[str]) -> None:
    assert (
        words[:2]
        in (["-m", "venv"], ["-m", "pytest"], ["-m", "pip"], ["-m", "benchmarks"], ["-m", "zipfile"])
        or "-c" in words
    )


PROGRAMS: Mapping[str, Callable[[list[str]], None]] = {
    "waldur-site-cluster": _own, "manage.py": _own, "celery": _celery, "systemctl": _systemctl, "docker": _docker,
    "pip": _pip, "uv": _pip, "make": _make, "python": _python, "python3": _python,
}  # fmt: skip


def test_every_command_of_a_block_exists_with_its_options() -> None:
    wrong = []
    for documented in words_of_pages():
        try:
            if documented.words:
                check_words(list(documented.words))
        except (AssertionError, click.ClickException) as error:
            wrong.append(f"{documented}: {error}")
    assert wrong == []


def test_every_command_in_a_sentence_exists_with_its_options() -> None:
    wrong = []
    for documented in words_in_sentences():
        words = list(documented.words)
        try:
            check_words(words) if words[0] in OURS else parse(cli, words)
        except (AssertionError, click.ClickException) as error:
            wrong.append(f"{documented}: {error}")
    assert wrong == []


def test_variables_that_blocks_set_are_known() -> None:
    source = "\n".join(
        path.read_text()
        for path in [*REPOSITORY.glob("*.py"), REPOSITORY / "Makefile", REPOSITORY / "docker-compose.yml"]
        + [path for room in ("agent", "tasks", "backends") for path in (REPOSITORY / room).rglob("*.py")]
    )
    known = {"PATH", "PYTHONPATH"}
    unknown = [
        f"{documented} {name}"
        for documented in words_of_pages()
        for name in documented.variables
        if name not in known and name not in source
    ]
    assert unknown == []


@dataclass(frozen=True)
class Prepared:
    """A site with something of everything, and the values of what documents only name."""

    values: Mapping[str, str]
    seen: set[str] = field(default_factory=set)  # the same words on another page say nothing new

    def words(self, documented: DocumentedCommand) -> list[str]:
        filled = [self.values.get(word, word) for word in documented.words]
        for word in filled:
            assert not re.fullmatch(r"[A-Z][A-Z_]+", word), f"{documented}: nothing is prepared for {word}"
        return filled


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, quick_emulator: Path) -> Iterator[Prepared]:
    folder = tmp_path_factory.mktemp("documents")
    _, environment = emulated_cluster(folder)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with (
        pytest.MonkeyPatch.context() as patch,
        SimulatedWaldur(scenario=Scenario(members_per_project=4)) as waldur,
    ):
        for name, value in environment.items():
            patch.setenv(name, value)
        site = OperatorSite(waldur, folder, environment, quick_emulator)
        config = site.configure(
            membership_sync_backend="slurm", reporting_backend="slurm",
            policy={"max_removed_members": 1, "small_removal": 0},
        )  # fmt: skip
        patch.setenv("WALDUR_SITE_AGENT_CONFIG", config)
        order = site.place()
        assert run(["run", "order_process", "--once"]) == 0
        staff = folder / "staff-token"
        staff.write_text(waldur.token("staff"))
        staff.chmod(0o600)
        assert run(["run", "membership_sync", "--once"]) == 0
        people = waldur.seed.members[waldur.seed.project_uuids[0]]
        for member in people[:3]:
            waldur.people.remove_member(waldur.seed.project_uuids[0], member)
        assert run(["run", "membership_sync", "--once"]) == 0  # leavers wait for an approval
        with closing(sqlite3.connect(folder / "state" / "state.sqlite3")) as state:
            ((held,),) = state.execute("SELECT id FROM held_plans").fetchall()
        yield Prepared({
            "UUID": waldur.seed.offering_uuid, "ORDER": order, "RESOURCE": waldur.order(order).resource_uuid,
            "PLAN": held, "8b028d96707c": held,
            "status.html": str(folder / "status.html"), "2024-12-31": "2024-01-31", "FILE": str(folder / "plan.json"),
            "/etc/waldur/waldur-site-agent-config.yaml": config, "/root/staff-token": str(staff),
        })  # fmt: skip
    logging.captureWarnings(False)
    root.handlers, root.level = handlers, level


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_our_commands_run(page: Path, prepared: Prepared, command: Callable[..., Ended]) -> None:
    wrong = []
    for documented in shell_blocks.of_document(page):
        if not documented.words or os.path.basename(documented.words[0]) not in (
            "waldur-site-cluster",
            "manage.py",
        ):
            continue
        if documented.words[1] in NOT_RUN:
            continue
        line = " ".join(documented.words[1:])
        if line in prepared.seen:
            continue
        prepared.seen.add(line)
        ended = command(*prepared.words(documented)[1:])
        if ended.code != ENDS_WITH.get(line, 0):
            wrong.append(f"{documented}: ended with {ended.code}\n{ended.out[-500:]}{ended.err[-1500:]}")
    assert wrong == []
