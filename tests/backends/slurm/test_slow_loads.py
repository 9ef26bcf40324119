# SPDX-License-Identifier: MIT
"""Loads that take longer than was thought: what is left goes by single commands where these are sooner."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.core.actions import ClusterAction
from agent.core.model import Snapshot
from backends.base import HintsOfThisProcess
from backends.lock import WriteLock
from backends.process import Runner
from backends.slurm.apply import Writer
from backends.slurm.commands import CommandBuilder
from backends.slurm.costs import LOAD_USERS, UNIT, Costs
from backends.slurm.jobs import Jobs
from backends.slurm.load_file import ACCOUNTS_PER_FILE, QUESTION
from backends.slurm.programs import Programs
from tests.backends.slurm.wanted import account, join

# A load reads the whole tree first, which the costs know nothing of.
SACCTMGR = """#!/bin/sh
echo "$*" >> {folder}/log
case "$*" in *" load "*) sleep {reading_s}; printf '{question}'; read -r answer ;; esac
"""


@pytest.mark.parametrize(("reading_s", "single_s"), [(0, 1.0), (3, 0.01)])
def test_what_is_left_after_a_slow_load_goes_by_single_commands_where_they_are_sooner(
    tmp_path: Path, reading_s: int, single_s: float
) -> None:
    learnt = HintsOfThisProcess[float]()
    # By single commands of 0.01 s the members of a file take 2.5 s, of 1 s 250 s. A load is thought to take a moment.
    learnt |= {LOAD_USERS: 0.01, LOAD_USERS + UNIT: 1e-4, "add user": single_s, f"add user{UNIT}": 0.01}
    joins = [join(f"a{n}", f"u{n}", present_default="") for n in range(2 * ACCOUNTS_PER_FILE)]
    loads = loads_of(joins, Costs(lambda: 0, learnt), tmp_path, reading_s)
    assert loads == 1 if reading_s else loads > 1


def test_members_are_loaded_beside_a_new_account_that_is_made_sooner_by_single_commands(
    tmp_path: Path,
) -> None:
    joins = [join(f"a{n}", f"u{n}_{m}", present_default="") for n in range(60) for m in range(5)]
    new = [account("new"), join("new", "stranger", present_default="")]
    assert loads_of([*new, *joins], Costs(lambda: 5000, HintsOfThisProcess()), tmp_path) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may work in a folder of another user")
def test_where_the_state_is_another_users_a_file_is_loaded_that_this_one_cannot_change(
    tmp_path: Path,
) -> None:
    """As where the console's user owns it."""
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 12345, 12345)
    joins = [join("a", f"u{n}", present_default="") for n in range(5)] + [account("a")]
    assert loads_of(joins, Costs(lambda: 0, HintsOfThisProcess()), tmp_path) == 1


def loads_of(actions: Sequence[ClusterAction], costs: Costs, folder: Path, reading_s: int = 0) -> int:
    """Carry the actions out, and return how many files were loaded."""
    program = folder / "sacctmgr"
    program.write_text(SACCTMGR.format(folder=folder, reading_s=reading_s, question=QUESTION))
    program.chmod(0o755)
    programs, runner = Programs(str(folder)), Runner()
    writer = Writer(
        runner,
        CommandBuilder("c1"),
        WriteLock(folder / "state", "c1"),
        programs=programs,
        tree=lambda: Snapshot("c1"),
        members=lambda _: Snapshot("c1"),
        jobs=Jobs(runner, programs, "c1"),
        costs=costs,
    )
    assert [outcome.error for outcome in writer.apply(actions, "c1")] == [None] * len(actions)
    return sum(" load " in line for line in (folder / "log").read_text().splitlines())
