# SPDX-License-Identifier: MIT
"""docs/migrate.md: every script, unit, file, key and variable that its table names is there, and none is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import pytest

from agent.cli.main import COMMANDS
from agent.config.environment import Variables
from agent.config.keys import keys_of
from agent.config.legacy_env import OldVariables
from agent.config.load import DEFAULT_PLACES
from agent.config.model import Mode, Periods
from agent.config.schema import (
    BackendSettingsKeys,
    ComponentKeys,
    ComputedKeys,
    OfferingKeys,
    PeriodicLimitsKeys,
    RootKeys,
)
from tests import REPOSITORY
from tests.docs.test_commands import OLD_UNITS, PROJECT, check_words

PAGE = (REPOSITORY / "docs" / "migrate.md").read_text()
SCRIPTS = set(PROJECT["project"]["scripts"]) - {"waldur-site-cluster"}
UNITS = OLD_UNITS | {path.name for path in (REPOSITORY / "systemd").glob("*.service")}
UNIT_TEXTS = "\n".join(path.read_text() for path in (REPOSITORY / "systemd-conf").rglob("*.service"))
VARIABLES = {name for kind in (Variables, Periods, OldVariables) for name in keys_of(kind)}
KEYS = {
    name
    for kind in (
        RootKeys, OfferingKeys, BackendSettingsKeys, ComponentKeys, ComputedKeys, PeriodicLimitsKeys,
    )
    for name in keys_of(kind)
}  # fmt: skip
# Of the reference: our files have none of them, and the page says what is there instead.
GONE = {"/tmp/waldur-site-agent-heartbeat", "...-error.log"}
# Words of an operating system, of options and of other pages.
PLAIN = {
    "waldur-site-agent",
    "--heartbeat-path",
    "--liveness-only",
    "ps",
    "sacct",
    "docker exec",
    "-m",
    "-c FILE",
    "journalctl -u UNIT",
    ".env",
    "--dry-run",
    "config-check",
}


def rows() -> Iterator[list[str]]:
    """The cells of the table, without its heading and the names of its parts."""
    _, _, below = PAGE.partition("| you have | it is now | what changes |\n|---|---|---|\n")
    for line in below.split("\n\n")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not cells[0].startswith("**"):
            yield [*cells, ""][:3]


def words() -> set[str]:
    return {word for row in rows() for word in re.findall(r"`([^`]+)`", " ".join(row))}


def first_words() -> set[str]:
    return {word for row in rows() for word in re.findall(r"`([^`]+)`", row[0])}


def is_file_of_ours(word: str) -> bool:
    return (REPOSITORY / word).exists()


def is_command(word: str) -> bool:
    """Whether a command with words exists; raises AssertionError, or click's, for an option that does not."""
    program, *rest = word.split()
    if program in SCRIPTS:
        return all(each.startswith("-") or each.isupper() for each in rest)
    if program in ("waldur-site-cluster", "celery"):
        check_words([program, *rest])
        return True
    return word.startswith("python3 -m waldur_slurm.main") and is_file_of_ours("waldur_slurm/main.py")


KINDS: Mapping[str, Callable[[str], bool]] = {
    "unit": UNITS.__contains__,
    "variable": VARIABLES.__contains__,
    "key": lambda word: word.split(":")[0] in KEYS,
    "mode or command": lambda word: (
        word in {mode.value for mode in Mode} | COMMANDS.keys() | {"pull", "push", "FILE"}
    ),
    "command with words": is_command,
    "file": is_file_of_ours,
    "place": lambda word: word in UNIT_TEXTS or word in map(str, DEFAULT_PLACES),
    "plain": (PLAIN | GONE).__contains__,
}


@pytest.mark.parametrize("word", sorted(words()))
def test_what_the_table_names_is_there(word: str) -> None:
    assert any(is_known(word) for is_known in KINDS.values()), word


def test_every_row_says_what_it_is_now() -> None:
    found = list(rows())
    assert len(found) >= 46
    assert [row for row in found if not row[1]] == []


def test_no_script_unit_or_variable_is_left_out() -> None:
    named = first_words()
    assert SCRIPTS - {word.split()[0] for word in named} == set()
    assert OLD_UNITS - named == set()
    assert keys_of(OldVariables).keys() - named == set()
    assert keys_of(Periods).keys() - named == set()


@pytest.mark.parametrize(
    "word", ["waldur_site_nothing", "waldur-site-agent-pull.service", "SLURM_ACCOUNT", "systemd-conf/x"]
)
def test_a_name_that_does_not_exist_is_found_out(word: str) -> None:
    assert not any(is_known(word) for is_known in KINDS.values())
