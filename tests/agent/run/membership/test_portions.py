# SPDX-License-Identifier: MIT
"""A pass that changes more accounts than are written at once: portion by portion, and it may stop between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.core.actions import ClusterAction
from agent.core.errors import BackendUnavailable, PassUnfinished
from agent.core.plans import Outcome
from agent.run.membership.mode import ACCOUNTS_AT_ONCE, PORTION_S
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import World

PROJECTS = 70
GENEROUS = {"max_removed_percent": 100, "max_removed_members": 1000, "max_removed_accounts": 1000}


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[World]:
    """140 accounts in step, two in each project; then one member of each project moves on to the next."""
    scenario = Scenario(
        customers=1,
        projects_per_customer=PROJECTS,
        members_per_project=2,
        allocations_per_project=2,
        backend_prefix="a_",
    )
    with SimulatedWaldur(scenario=scenario) as waldur:
        world = World(waldur, tmp_path, policy=GENEROUS)
        world.fill()
        world.converge()
        projects = waldur.seed.project_uuids
        for number, project in enumerate(projects):
            mover = waldur.seed.members[project][1]
            waldur.people.remove_member(project, mover)
            waldur.people.add_member(projects[(number + 1) % PROJECTS], mover)
        yield world


def test_everybody_arrives_and_keeps_a_valid_default_account(crowd: World) -> None:
    assert ACCOUNTS_AT_ONCE < 2 * PROJECTS
    before = dict(crowd.cluster.default_accounts)
    calls: list[int] = []
    apply = crowd.backend.apply
    crowd.backend.apply = lambda actions: (calls.append(len(actions)), apply(actions))[1]  # type: ignore[method-assign]
    report = crowd.sync()
    assert report.counted() == {"done": 2 * PROJECTS}, report.as_json()
    assert len(calls) == 3, "two for who comes, one for who leaves"
    assert sum(calls) == len([o for o in report.outcomes if o.done])
    for user in before:
        assert crowd.cluster.default_accounts[user] in crowd.cluster.accounts_of(user)
    assert {len(crowd.members(account)) for account in crowd.cluster.accounts if account[:2] == "a_"} == {2}
    crowd.in_step()


def test_a_slow_cluster_gets_smaller_portions(crowd: World) -> None:
    """A second for each action: no task ends in the middle of a portion, with nothing of it noted."""
    calls: list[int] = []
    apply = crowd.backend.apply
    crowd.backend.expected_s = len  # type: ignore[attr-defined]
    crowd.backend.apply = lambda actions: (calls.append(len(actions)), apply(actions))[1]  # type: ignore[method-assign]
    report = crowd.sync()
    assert report.counted() == {"done": 2 * PROJECTS}, report.as_json()
    assert max(calls) <= PORTION_S
    assert len(calls) > 3
    crowd.in_step()


def test_portions_grow_again_where_the_cluster_proves_quick(crowd: World) -> None:
    """What is read back takes time, too: fewer portions, fewer reads."""
    price_s, calls = 1.0, list[int]()
    apply = crowd.backend.apply

    def applied(actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        nonlocal price_s
        price_s /= 4
        calls.append(len(actions))
        return apply(actions)

    crowd.backend.expected_s = lambda actions: price_s * len(actions)  # type: ignore[attr-defined]
    crowd.backend.apply = applied  # type: ignore[method-assign]
    report = crowd.sync()
    assert report.counted() == {"done": 2 * PROJECTS}, report.as_json()
    assert calls[0] <= PORTION_S < calls[1], calls
    crowd.in_step()


def test_a_pass_without_time_leaves_the_rest_to_the_next_one(crowd: World) -> None:
    before = crowd.cluster
    report = crowd.sync(seconds=-1)
    assert crowd.cluster == before
    assert report.counted() == {"retry": 2 * PROJECTS}
    assert isinstance(report.retryable_error, PassUnfinished)
    assert {resource.state.value for resource in crowd.waldur.store.resources} == {"OK"}
    crowd.sync()
    crowd.in_step()


def test_after_an_outage_no_further_portion_is_tried_and_the_next_pass_goes_on(crowd: World) -> None:
    apply, calls = crowd.backend.apply, 0

    def dies_in_the_second(actions: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise BackendUnavailable("slurmdbd is down")
        return apply(actions)  # type: ignore[arg-type]

    crowd.backend.apply = dies_in_the_second  # type: ignore[method-assign,assignment]
    report = crowd.sync()
    assert calls == 2
    assert set(report.counted()) <= {"retry", "done"}
    assert {resource.state.value for resource in crowd.waldur.store.resources} == {"OK"}
    assert not [o for o in report.outcomes if o.done and o.action.verb == "remove member"]
    crowd.backend.apply = apply  # type: ignore[method-assign]
    crowd.sync()
    crowd.in_step()
    assert {len(crowd.members(account)) for account in crowd.cluster.accounts if account[:2] == "a_"} == {2}
