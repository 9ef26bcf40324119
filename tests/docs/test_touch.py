# SPDX-License-Identifier: MIT
"""What the page on architecture says one has to touch to add something, held against the code as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from agent.cli.main import COMMANDS
from agent.config import schema
from agent.core.actions import KINDS
from agent.core.events import JobKind, ObjectType
from agent.run import passes
from agent.waldur.actions import REQUESTS
from backends import base

# Tests make kinds of their own.
OURS = {name: kind for name, kind in KINDS.items() if kind.__module__.startswith("agent.core.")}
REPOSITORY = Path(__file__).resolve().parents[2]
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


def naming(word: str) -> list[str]:
    """The files of the product that name something."""
    whole = re.compile(rf"\b{re.escape(word)}\b")
    return [path for path, text in sources().items() if whole.search(text)]


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
    assert [path for path in files if path.startswith(("backends/", "agent/run/api_keys.py"))] != []
    strangers = ("agent/cli/", "agent/state/", "agent/waldur/", "agent/config/", "tasks/")
    assert [path for path in files if path.startswith(strangers)] == []


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
    assert (KINDS[name] in REQUESTS, len(areas)) == ((False, 0) if name in OF_A_MODE else (True, 1))
    assert [path for path in files if path.startswith(("backends/slurm", "backends/moab", "tasks/"))] == []


@pytest.mark.parametrize("kind", sorted({k for modes in passes.LISTS.values() for k in modes}, key=str))
def test_a_kind_of_provisioning(kind: type) -> None:
    """A mode is known to its own file and to the lists."""
    own = kind.__module__.replace(".", "/") + ".py"
    files = [path for path in naming(kind.__name__) if f"import {kind.__name__}" in sources()[path]]
    named = re.compile(rf"from {re.escape(kind.__module__)} import [^\n]*\b{kind.__name__}\b")
    importing = [path for path in files if named.search(sources()[path])]
    assert importing == ["agent/run/passes.py"], own


@pytest.mark.parametrize("event", ObjectType, ids=str)
def test_an_event(event: ObjectType) -> None:
    word = f"ObjectType.{event.name}"
    found = [path for path, text in sources().items() if re.search(rf"{re.escape(word)}\b", text)]
    assert "agent/bridge/decode.py" in found
    assert set(found) <= {"agent/bridge/decode.py", "agent/run/event_coverage.py"}


@pytest.mark.parametrize("job", JobKind, ids=str)
def test_a_kind_of_job(job: JobKind) -> None:
    assert "tasks/events.py" in [
        p for p, text in sources().items() if re.search(rf"JobKind\.{job.name}\b", text)
    ]


def test_a_key_of_the_configuration() -> None:
    page = (REPOSITORY / "docs/configuration.md").read_text()
    fields = {name for kind in vars(schema).values() for name in getattr(kind, "_declared_fields", ())}
    assert len(fields) > 40
    assert sorted(name for name in fields if f"`{name}" not in page and f"`{name}`" not in page) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command(command: str) -> None:
    module, _ = COMMANDS[command]
    assert f"{module.replace('.', '/')}.py" in sources()
    assert f"{command}" in (REPOSITORY / "docs/commands.md").read_text()


def test_a_power_of_a_backend() -> None:
    powers = [n for n in vars(base) if n.endswith("Power") and n[0].isupper()]
    assert powers != []
    for power in powers:
        assert [path for path in naming(power) if path.startswith("agent/run/")] != [], power
