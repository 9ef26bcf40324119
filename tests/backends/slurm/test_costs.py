# SPDX-License-Identifier: MIT
"""How much one command carries: by the size of the cluster, and by what commands took before."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from math import ceil
from pathlib import Path
from threading import Event, Thread

import pytest

from agent.core.actions import AddMember, ClusterAction, CreateAccount, RemoveMember
from agent.core.errors import ClusterBusy
from agent.core.model import Snapshot
from agent.state.hints import COMMAND_COSTS
from backends import lock
from backends.base import HintsOfThisProcess
from backends.lock import WriteLock
from backends.process import Runner
from backends.slurm.apply import Writer
from backends.slurm.commands import CommandBuilder
from backends.slurm.costs import LOAD, LOAD_USERS, REMOVALS, Costs, kind_of, leading_actions
from backends.slurm.grouping import NAMES_AT_ONCE
from backends.slurm.jobs import Jobs
from backends.slurm.programs import Programs
from rig.processes import wait_until
from tests.backends.slurm.wanted import account, costs, join, leave

pytestmark = pytest.mark.cost

SMALL, LARGE, HUGE = 100, 10_000, 50_000
REMOVE = "remove user"


@pytest.mark.parametrize(
    ("rows", "least", "most"), [(0, NAMES_AT_ONCE, NAMES_AT_ONCE), (LARGE, 10, 50), (HUGE, 5, 12)]
)
def test_a_batch_of_removals_is_smaller_on_a_larger_cluster(rows: int, least: int, most: int) -> None:
    assert least <= costs(rows).units_at_once(REMOVE) <= most


def taken(
    of_cluster: Costs, kind: str, actions: int, command_s: float, unit_s: float
) -> list[tuple[int, float]]:
    """The work and the seconds of each command for so many actions, on a cluster where commands take this."""
    found = []
    while actions:
        units = min(actions, of_cluster.units_at_once(kind))
        seconds = command_s + units * unit_s
        of_cluster.note(kind, units, seconds)
        found.append((units, seconds))
        actions -= units
    return found


# What commands take by themselves, and for each unit: measured on 22.05 and 24.11, and thought of for slow machines.
CLUSTERS = {
    "22.05, 10,000 associations": (LARGE, 0.45, 0.077),
    "22.05, 50,000 associations": (HUGE, 0.7, 0.38),
    "24.11, 10,000 associations": (LARGE, 0.45, 0.004),
    "24.11, 50,000 associations": (HUGE, 0.5, 0.004),
    "three times as slow": (LARGE, 1.4, 0.23),
    "slow by themselves": (LARGE, 2.5, 0.1),
    "slower": (LARGE, 4.0, 0.1),
    "as slow as a command may be": (LARGE, 5.0, 0.1),
    "slow by themselves and by their work": (LARGE, 5.0, 0.3),
    "slow and small": (SMALL, 5.0, 0.01),
}


@pytest.mark.parametrize(("rows", "command_s", "unit_s"), CLUSTERS.values(), ids=CLUSTERS)
def test_batches_find_the_size_that_takes_as_long_as_it_may(
    rows: int, command_s: float, unit_s: float
) -> None:
    """Whatever the release and the machine: the first commands find it out, and few more are run than are needed."""
    of_cluster, kind = costs(rows), "add user"
    may_take_s = max(of_cluster.limit_s, command_s * 1.25)
    first = taken(of_cluster, kind, 1000, command_s, unit_s)
    assert max(seconds for _, seconds in first[4:] or [(0, 0.0)]) <= may_take_s + 0.01
    assert all(after <= 2 * before for (before, _), (after, _) in pairwise(first))
    later = taken(of_cluster, kind, 1000, command_s, unit_s)
    assert max(seconds for _, seconds in later) <= may_take_s + 0.01
    needed = ceil(1000 / min(NAMES_AT_ONCE, (may_take_s - command_s) // unit_s))
    assert len(later) <= 1.5 * needed


def test_batches_recover_from_a_time_in_which_all_was_slow() -> None:
    of_cluster, kind = costs(LARGE), "add user"
    usual = taken(of_cluster, kind, 1000, 0.45, 0.05)[-2][0]
    slow = taken(of_cluster, kind, 400, 8.0, 0.5)[-2][0]
    assert slow < usual / 10
    sizes = [units for units, _ in taken(of_cluster, kind, 1000, 0.45, 0.05)]
    assert max(sizes[:8]) >= 0.9 * usual, sizes


def test_one_slow_command_makes_the_next_one_as_much_smaller() -> None:
    of_cluster = costs(LARGE)
    first = of_cluster.units_at_once(REMOVE)
    of_cluster.note(REMOVE, first, 4 * of_cluster.seconds(REMOVE, first))
    assert 1 <= of_cluster.units_at_once(REMOVE) <= first / 2


def test_removals_that_were_quick_do_not_let_the_next_ones_grow_without_end() -> None:
    """What was quick may have been old associations, which renumber nothing; the next one may be young."""
    of_cluster = costs(LARGE)
    sizes = [units for units, _ in taken(of_cluster, REMOVE, 2000, 0.45, 0.0003)]
    guess = costs(LARGE).of(REMOVE)
    assert sizes[0] < max(sizes)
    assert guess.command_s + max(sizes) * guess.unit_s <= 2 * of_cluster.limit_s


def test_where_nothing_is_renumbered_removals_that_were_quick_grow_to_all_that_fit() -> None:
    of_cluster = Costs(lambda: LARGE, HintsOfThisProcess[float](), lambda: False)
    sizes = [units for units, _ in taken(of_cluster, REMOVE, 2000, 0.45, 0.0003)]
    assert max(sizes) == NAMES_AT_ONCE


def test_a_command_that_carries_little_is_still_one_action() -> None:
    assert costs(10**7).units_at_once(REMOVE) == 1
    assert costs(HUGE, remove_user=(9.0, 8.0)).units_at_once(REMOVE) == 1


def test_a_command_that_is_slow_by_itself_is_not_made_many() -> None:
    assert costs(LARGE, modify_account=(8.0, 0.02)).units_at_once("modify account") >= 50


def test_no_command_is_expected_to_take_longer_than_it_may_but_for_one_that_is_slow_by_itself() -> None:
    for rows, kind in product((SMALL, LARGE, HUGE), (*REMOVALS, "add user", "add account", "modify account")):
        of_cluster = costs(rows)
        may_take_s = max(of_cluster.limit_s, 1.25 * of_cluster.of(kind).command_s)
        assert of_cluster.seconds(kind, of_cluster.units_at_once(kind)) <= may_take_s


def carried(actions: Sequence[ClusterAction], at_most: int) -> list[int]:
    """The number of actions of each command, for actions that one command could carry."""
    builder, left, found = CommandBuilder("c1"), list(actions), []
    assert len(builder.batches(left)) == 1
    while left:
        some = leading_actions(left, at_most)
        (batch,) = builder.batches(some)
        found.append(len(batch.actions))
        left = [action for action in left if action not in some]
    return found


@pytest.mark.parametrize(
    ("at_most", "sizes"), [(100, [50]), (50, [50]), (24, [20, 20, 10]), (7, [5] * 10), (3, [3, 2] * 10)]
)
def test_a_product_of_users_and_accounts_is_cut_into_products(at_most: int, sizes: list[int]) -> None:
    leavers = [leave(f"a{n}", f"u{m}") for n in range(5) for m in range(10)]
    if at_most == 3:  # three accounts of a user, and the two that are left of that one
        assert sorted(carried_of_each_user(leavers)) == [[2, 3]] * 10
    else:
        assert carried(leavers, at_most) == sizes


def carried_of_each_user(leavers: Sequence[RemoveMember]) -> list[list[int]]:
    users = sorted({each.user for each in leavers})
    return [sorted(carried([each for each in leavers if each.user == user], 3)) for user in users]


def test_accounts_are_cut_as_they_come() -> None:
    made: list[CreateAccount] = [account(f"a{n}") for n in range(10)]
    assert [a.account for a in leading_actions(made, 4)] == ["a0", "a1", "a2", "a3"]


def test_members_of_one_account_renumber_the_tree_once_and_those_of_several_each() -> None:
    def units(joins: Sequence[AddMember]) -> float:
        (batch,) = CommandBuilder("c1").batches(joins)
        return costs(LARGE).units_of(kind_of(batch.argv), batch.actions)

    assert units([join("a", f"u{n}") for n in range(10)]) <= 2
    assert units([join(f"a{m}", f"u{n}") for n in range(10) for m in range(3)]) == 30


def test_what_was_learnt_is_known_to_the_next_process_for_a_day(tmp_path: Path) -> None:
    first = Costs(lambda: LARGE, COMMAND_COSTS.of(tmp_path, "slurmdbd"))
    first.note(REMOVE, 10, 3 * first.seconds(REMOVE, 10))
    second = Costs(lambda: LARGE, COMMAND_COSTS.of(tmp_path, "slurmdbd"))
    assert second.units_at_once(REMOVE) == first.units_at_once(REMOVE) < costs(LARGE).units_at_once(REMOVE)
    assert REMOVE not in COMMAND_COSTS.of(tmp_path, "another").read()
    assert "add user" not in COMMAND_COSTS.of(tmp_path, "slurmdbd").read()


def test_what_was_learnt_is_read_once(tmp_path: Path) -> None:
    """A plan asks of each kind of command many times, and each reading opens a file."""
    readings = 0

    class Counted(HintsOfThisProcess[float]):
        def read(self) -> dict[str, float]:
            nonlocal readings
            readings += 1
            return {}

    of_cluster = Costs(lambda: LARGE, Counted())
    for kind in (REMOVE, "add user", REMOVE):
        of_cluster.total_s(kind, [leave("a", "u")])
    assert readings == 1


@pytest.mark.parametrize("kind", [LOAD, LOAD_USERS, *REMOVALS, "add user", "add account"])
def test_no_size_of_cluster_makes_commands_of_almost_nothing(kind: str) -> None:
    """A command's work is at least a tenth of what it takes by itself, or one unit."""
    for rows in range(0, 4 * HUGE, 500):
        of_cluster = costs(rows)
        size, cost = of_cluster.units_at_once(kind), of_cluster.of(kind)
        assert size == NAMES_AT_ONCE or (size + 1) * cost.unit_s >= 0.1 * cost.command_s


def test_what_many_actions_take_grows_with_the_cluster(tmp_path: Path) -> None:
    leavers = [leave("a", f"u{n}") for n in range(200)]
    expected_s = [
        LargeCluster(tmp_path / str(rows), rows=rows).writer.expected_s(leavers, "c1")
        for rows in (0, LARGE, HUGE)
    ]
    assert expected_s[0] < 5 < expected_s[1] < 50 < expected_s[2]


# What a writer does with it --------------------------------------------------------------------------

SLOW_ONCE = """#!/bin/sh
echo "$*" >> {folder}/log
while ! [ -e {folder}/go ]; do sleep 0.02; done
"""


class LargeCluster:
    """A cluster of 50,000 associations whose first write takes as long as the test wants."""

    def __init__(self, folder: Path, *, wait_s: float = 60, rows: int = HUGE) -> None:
        self.folder = folder
        program = folder / "bin" / "sacctmgr"
        program.parent.mkdir(parents=True)
        program.write_text(SLOW_ONCE.format(folder=folder))
        program.chmod(0o755)
        programs, runner = Programs(str(program.parent)), Runner()
        self.writer = Writer(
            runner,
            CommandBuilder("c1"),
            WriteLock(folder / "state", "c1", wait_s=wait_s),
            programs=programs,
            tree=lambda: Snapshot("c1"),
            members=lambda _: Snapshot("c1"),
            jobs=Jobs(runner, programs, "c1"),
            costs=costs(rows),
        )

    def commands(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.mark.usefixtures("unlimited_courtesy")
def test_an_order_gets_in_between_two_batches_of_a_mass_removal(tmp_path: Path) -> None:
    cluster = LargeCluster(tmp_path)
    leavers = [leave("a", f"u{n:02}") for n in range(40)]
    with ThreadPoolExecutor(1) as pool:
        removal = pool.submit(cluster.writer.apply, leavers, "c1")
        wait_until("the first batch has begun", cluster.commands)
        seen: list[int] = []

        def order() -> None:
            with WriteLock(tmp_path / "state", "c1", wait_s=60, is_urgent=True):
                seen.append(len(cluster.commands()))

        waiting = Thread(target=order)
        waiting.start()
        wait_until("the order waits", lambda: lock._is_held(tmp_path / "state" / "locks" / "urgent-c1.lock"))
        (tmp_path / "go").touch()
        outcomes = removal.result()
    waiting.join()
    assert seen == [1]
    assert all(outcome.done for outcome in outcomes)
    assert [outcome.action for outcome in outcomes] == leavers
    sizes = [len(re.findall(r"u\d\d", line)) for line in cluster.commands()]
    assert sizes[0] == costs(HUGE).units_at_once(REMOVE) < 40
    assert all(after <= 2 * before for before, after in pairwise(sizes))


@pytest.mark.usefixtures("unlimited_courtesy")
def test_what_did_not_get_the_lock_back_is_left_to_the_next_pass(tmp_path: Path) -> None:
    cluster = LargeCluster(tmp_path, wait_s=0.2)
    leavers = [leave("a", f"u{n:02}") for n in range(40)]
    with ThreadPoolExecutor(1) as pool:
        removal = pool.submit(cluster.writer.apply, leavers, "c1")
        wait_until("the first batch has begun", cluster.commands)
        over = Event()

        def order() -> None:
            with WriteLock(tmp_path / "state", "c1", wait_s=60, is_urgent=True):
                over.wait(600)

        waiting = Thread(target=order)
        waiting.start()
        wait_until("the order waits", lambda: lock._is_held(tmp_path / "state" / "locks" / "urgent-c1.lock"))
        (tmp_path / "go").touch()
        outcomes = removal.result()
        over.set()
        waiting.join()
    assert len(cluster.commands()) == 1
    assert [outcome.action for outcome in outcomes] == leavers
    done = [outcome for outcome in outcomes if outcome.done]
    assert 0 < len(done) < 40
    assert all(isinstance(outcome.error, ClusterBusy) for outcome in outcomes if outcome not in done)
