# SPDX-License-Identifier: MIT
"""When a load is worth it: how long it takes, and who must not wait for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.actions import ClusterAction
from backends.base import HintsOfThisProcess
from backends.lock import WriteLock
from backends.process import Runner
from backends.slurm import load_file
from backends.slurm.commands import CommandBuilder
from backends.slurm.costs import LOAD_USERS, Costs, kind_of
from backends.slurm.loader import Loader
from backends.slurm.programs import Programs
from tests.backends.slurm.wanted import account, costs, join

pytestmark = pytest.mark.cost

SMALL, LARGE, HUGE = 100, 10_000, 50_000


def site(allocations: int) -> list[ClusterAction]:
    """Return what makes a customer with projects, an allocation of five new users in each."""
    found: list[ClusterAction] = [account("c")]
    for number in range(allocations):
        found += [account(f"p{number}", "c"), account(f"a{number}", f"p{number}")]
        found += [join(f"a{number}", f"u{number}_{each}", present_default="") for each in range(5)]
    return found


def loader_of(folder: Path, of_cluster: Costs, *, is_urgent: bool = False) -> Loader:
    lock = WriteLock(folder, "c1", is_urgent=is_urgent)
    with lock:
        pass
    return Loader(Runner(), CommandBuilder("c1"), lock, Programs(""), of_cluster)


@pytest.mark.parametrize(
    ("rows", "allocations", "is_urgent", "loaded"),
    [
        (0, 1, False, True),
        (LARGE, 1, True, False),
        (LARGE, 10, False, False),
        (LARGE, 10, True, True),
        (HUGE, 1, True, False),
        (HUGE, 10, False, False),
        (HUGE, 10, True, True),
    ],
)
def test_what_is_sooner_is_loaded_unless_others_would_be_shut_out_for_long_without_an_order(
    tmp_path: Path, rows: int, allocations: int, is_urgent: bool, loaded: bool
) -> None:
    """A load reads all users with their associations first, which takes half a minute on 50,000 of these."""
    loader = loader_of(tmp_path, costs(rows), is_urgent=is_urgent)
    found, seconds = loader.expected(site(allocations), "c1")
    assert bool(found) == loaded
    assert (seconds > 0) == loaded


def test_on_a_small_cluster_two_commands_are_run_by_themselves(tmp_path: Path) -> None:
    loader = loader_of(tmp_path, costs(SMALL))
    assert loader.expected([account("c")], "c1") == (frozenset(), 0.0)
    assert loader.expected(site(1), "c1")[0] == set(site(1))


def test_many_members_are_loaded_in_pieces_that_keep_no_writer_out_for_long(tmp_path: Path) -> None:
    of_cluster = costs(LARGE)
    loader = loader_of(tmp_path, of_cluster)
    joins = [join(f"a{n}", f"u{n}_{m}", present_default="") for n in range(200) for m in range(5)]
    found, seconds = loader.expected(joins, "c1")
    assert found == set(joins)
    single = CommandBuilder("c1").batches(joins)
    assert seconds <= sum(of_cluster.total_s(kind_of(batch.argv), batch.actions) for batch in single) / 2
    assert of_cluster.seconds(LOAD_USERS, loader._units_at_once(LOAD_USERS)) <= of_cluster.limit_s


@pytest.mark.parametrize("rows", [12_000, 14_000])
@pytest.mark.parametrize(("accounts", "each"), [(300, 1), (60, 5)])
def test_where_nothing_is_renumbered_many_joins_are_loads_that_keep_no_writer_out_for_long(
    tmp_path: Path, rows: int, accounts: int, each: int
) -> None:
    """A minute of joins over 300 projects, beside 10,000 associations: single commands for each fall behind."""
    of_cluster = Costs(lambda: rows, HintsOfThisProcess[float](), lambda: False)
    loader = loader_of(tmp_path, of_cluster)
    joins = [join(f"a{n}", f"u{n}_{m}", present_default="") for n in range(accounts) for m in range(each)]
    found, _ = loader.expected(joins, "c1")
    assert found == set(joins)
    for file in loader._worthwhile(joins, "c1"):
        assert of_cluster.seconds(file.kind, len(file.actions)) <= of_cluster.limit_s
    assert loader.expected(joins[:5], "c1") == (frozenset(), 0.0)


def test_a_load_for_orders_ends_before_slurmdbd_does(tmp_path: Path) -> None:
    """What it reads first keeps no writer waiting; all groups are written in one transaction."""
    for rows in (LARGE, HUGE, 2 * HUGE):
        of_cluster = costs(rows)
        loader = loader_of(tmp_path, of_cluster, is_urgent=True)
        for file in load_file.files(site(200), "c1", loader._units_at_once):
            assert of_cluster.seconds(file.kind, file.units) - of_cluster.seconds(file.kind, 0) <= 20


@pytest.mark.parametrize(("rows", "learnt"), [(2 * HUGE, {"load": (125.0, 0.8)}), (3 * HUGE, {})])
def test_a_load_that_would_outlast_its_task_is_not_begun(
    tmp_path: Path, rows: int, learnt: dict[str, tuple[float, float]]
) -> None:
    """It would leave nothing behind, and be begun again by the next pass. Single commands get somewhere."""
    found, _ = loader_of(tmp_path, costs(rows, **learnt), is_urgent=True).expected(site(30), "c1")
    assert not found


def test_people_who_join_accounts_that_are_there_are_loaded_beside_a_new_account_that_is_not(
    tmp_path: Path,
) -> None:
    loader = loader_of(tmp_path, costs(LARGE))
    joins = [join(f"a{n}", f"u{n}_{m}", present_default="") for n in range(100) for m in range(5)]
    found, _ = loader.expected([account("new"), join("new", "stranger", present_default=""), *joins], "c1")
    assert found == set(joins)
    # Whose default account is to be a new one waits for it.
    found, _ = loader.expected([account("new"), join("new", "u1_1", present_default=""), *joins], "c1")
    assert not found
