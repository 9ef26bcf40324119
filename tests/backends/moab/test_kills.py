# SPDX-License-Identifier: MIT
"""Killed at every step: a command before or after it did its work, and we ourselves while it does. What is wanted
stands in the end, and no deposit is made twice.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.core.actions import ClusterAction, DeleteAccount, SetLimits
from agent.core.errors import BackendUnavailable
from backends.testing.contract import join, leave, new
from simulator.mam.books import Books
from simulator.mam.install import StandIn
from tests.backends.conftest import on_stand_in
from tests.scale import FULL


@dataclass(frozen=True)
class Story:
    """Actions on the account `a_x`, the commands that they are, and what is there before and after them."""

    actions: Sequence[ClusterAction]
    commands: Sequence[str]
    deposits: Sequence[int] = ()
    allocated: int = 0
    stands: bool = True

    def begin(self, mam: StandIn) -> None:
        if not self.deposits:
            return
        with mam.changed() as books:
            books.create_account("a_x")
            books.add_user("a_x", "bob")
            for amount in self.deposits:
                books.create_fund("a_x")
                books.deposit(str(books.next_fund - 1), amount)

    def wrong(self, books: Books) -> list[str]:
        if not self.stands:
            return [*books.accounts, *books.funds]
        held = sum(fund["allocated"] for fund in books.funds.values())
        found = [] if held == self.allocated else [f"{held} were deposited, and not {self.allocated}"]
        found += [] if len(books.funds) == max(1, len(self.deposits)) else [f"funds {sorted(books.funds)}"]
        users = books.accounts["a_x"]["users"] if "a_x" in books.accounts else None
        return found + ([] if users in ({"ann": True}, {"bob": True}) else [f"users {users}"])


STORIES = {
    "made": Story(
        [new("a_x", "root"), SetLimits(account="a_x", after=(("deposit", 100),)), join("a_x", "ann")],
        ["mam-create-account", "mam-create-fund", "mam-deposit", "--add-user"],
        allocated=100_00,
    ),
    "raised": Story(
        [SetLimits(account="a_x", before=(("deposit", 100),), after=(("deposit", 250),))],
        ["mam-deposit"],
        deposits=(100_00,),
        allocated=250_00,
    ),
    "lowered": Story(
        [SetLimits(account="a_x", before=(("deposit", 100),), after=(("deposit", 30),))],
        ["mam-withdraw -z 40 -f 18", "mam-withdraw -z 30 -f 17"],
        deposits=(60_00, 40_00),
        allocated=30_00,
    ),
    "ended": Story(
        [leave("a_x", "bob"), DeleteAccount(account="a_x", parent="root")],
        ["--del-user", "mam-delete-fund -f 17", "mam-delete-fund -f 18", "mam-delete-account"],
        deposits=(60_00, 40_00),
        stands=False,
    ),
}


@pytest.fixture
def mam(tmp_path: Path) -> StandIn:
    """With real programs: a fault kills who started one."""
    made = StandIn(tmp_path)
    made.watch()
    return made


STEPS = [(story, command) for story, case in STORIES.items() for command in case.commands]
WHEN = ("before", "after")
MONEY = ("mam-create-fund", "mam-deposit", "mam-withdraw -z 40 -f 18", "mam-delete-fund -f 17")


# In a short run every step is killed at one of the two moments, and we ourselves at those that move money.
KILLED = [
    (*step, when) for number, step in enumerate(STEPS) for when in (WHEN if FULL else (WHEN[number % 2],))
]
DYING = [(*step, when) for step in STEPS for when in WHEN if FULL or (when == "before" and step[1] in MONEY)]


@pytest.mark.parametrize(("story", "command", "when"), KILLED)
def test_a_command_is_killed(mam: StandIn, story: str, command: str, when: str) -> None:
    case = STORIES[story]
    case.begin(mam)
    mam.faults({"needle": command, "times": 1, "when": when, "kill": "self"})
    outcomes = on_stand_in(mam).apply(case.actions)
    assert all(o.done or isinstance(o.error, BackendUnavailable) for o in outcomes)
    assert when == "before" or all(o.done for o in outcomes), "what the lists show was done"
    again = on_stand_in(mam).apply(case.actions)
    assert [o.error for o in again] == [None] * len(case.actions)
    assert case.wrong(mam.books) == []


@pytest.mark.parametrize(("story", "command", "when"), DYING)
def test_we_are_killed_while_a_command_works(
    mam: StandIn, tmp_path: Path, story: str, command: str, when: str
) -> None:
    """The command goes on for a while, and the next of us begins at once: it waits for the lock, and then looks."""
    case = STORIES[story]
    case.begin(mam)
    go_on = tmp_path / "go-on"
    mam.faults({"needle": command, "times": 1, "when": when, "kill": "parent", "until": str(go_on)})
    assert died(mam, case.actions)
    assert case.wrong(mam.books) != [] or when == "after" or command == "--add-user"
    threading.Timer(0.1, go_on.touch).start()
    again = on_stand_in(mam).apply(case.actions)
    assert [o.error for o in again] == [None] * len(case.actions)
    assert case.wrong(mam.books) == []


def died(mam: StandIn, actions: Sequence[ClusterAction]) -> bool:
    """Apply the actions in a process of its own; whether it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            on_stand_in(mam).apply(actions)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def test_a_deposit_whose_command_was_killed_may_still_come(mam: StandIn) -> None:
    """It was handed to MAM, which does it a moment later: what was read before that moment is not acted upon."""
    case = STORIES["raised"]
    case.begin(mam)
    mam.faults({"needle": "mam-deposit", "times": 1, "kill": "self"})
    backend = on_stand_in(mam)
    (outcome,) = backend.apply(case.actions)
    assert isinstance(outcome.error, BackendUnavailable), "nothing more is tried in this pass"
    with mam.changed() as books:
        books.deposit("17", 150_00)
    (outcome,) = backend.apply(case.actions)
    assert outcome.done
    assert case.wrong(mam.books) == []
