# SPDX-License-Identifier: MIT
"""What many small passes may do together: no more than one large one. And what a person means needs no second word."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from agent.config.model import Mode
from agent.core.errors import PassUnfinished
from agent.core.policy import BUDGETS, Cost
from agent.core.scope import PassScope
from agent.run import gate, passes
from agent.state import empty_answers, ledger
from agent.state.held_plans import HeldPlans
from agent.state.store import Store
from simulator.server.faults import Fault
from tests.agent.run.gate.floods import HOW, WorldOf, emptied, events, members, reconciled, world_of
from tests.world import World, approve

__all__ = ["world_of"]

pytestmark = [pytest.mark.safety, pytest.mark.floods]

# So many accounts may be emptied in an hour, and so many projects have one each: less than half of all may go at once.
EMPTIED = BUDGETS[Cost.ACCOUNTS_EMPTIED].hour
PROJECTS = 2 * EMPTIED + 4


def test_teams_that_are_answered_empty_one_by_one_are_held_as_in_one_pass(world_of: WorldOf) -> None:
    world = world_of(PROJECTS, 2)
    world.in_step()
    emptied(world)
    reports = events(world)
    assert members(world) == 2 * (PROJECTS - EMPTIED)
    assert [bool(report.held) for report in reports] == [False] * EMPTIED + [True] * (PROJECTS - EMPTIED)
    assert "after 10 within the last hour" in reports[-1].held[0].reason
    whole = world.sync()
    assert members(world) == 2 * (PROJECTS - EMPTIED)
    assert len(whole.held) == 1, [plan.reason for plan in whole.held]
    approve(world.site, Mode.MEMBERSHIP_SYNC, whole.held[0].id)
    assert world.sync().held == ()
    assert members(world) == 0


def test_a_mass_departure_is_one_plan_that_goes_on_to_its_end_once_it_is_approved(world_of: WorldOf) -> None:
    """Two passes by events, one over everything; then passes that yield after each portion."""
    world = world_of(130, 4)
    emptied(world, 3)
    projects = world.waldur.seed.project_uuids
    for some in (projects[:65], projects[65:]):
        report = passes.sync_members(world.site, scope=PassScope(projects=frozenset(some)))
        assert [len(plan.actions) for plan in report.held] == [3 * 65]
    assert gate.are_held_apart(world.site, Mode.MEMBERSHIP_SYNC)
    (plan,) = world.sync().held
    assert "2 plans that were held one by one: 390 members of 130 accounts would be removed" in plan.reason
    assert len(plan.reason) < 500
    assert not gate.are_held_apart(world.site, Mode.MEMBERSHIP_SYNC)
    assert members(world) == 520
    approve(world.site, Mode.MEMBERSHIP_SYNC, plan.id)
    left = [members(world)]
    while left[-1] > 130:
        report = passes.sync_members(world.site, must_yield=lambda: True)
        assert (report.error, report.held) == (None, ())
        left.append(members(world))
        assert left[-1] < left[-2], report.as_json()
        if left[-1] > 130:
            assert isinstance(report.retryable_error, PassUnfinished)
            by_event = passes.sync_members(world.site, scope=PassScope.of(project_uuid=projects[-1]))
            assert (by_event.error, by_event.held) == (None, ())
    assert len(left) > 2, "more than one portion"
    assert world.sync().held == ()


def test_half_of_each_team_missing_is_held_after_the_budget(world_of: WorldOf) -> None:
    within = BUDGETS[Cost.MEMBERS_REMOVED].hour // 5
    world = world_of(within + 4, 10)
    before = members(world)
    emptied(world, 5)
    reports = events(world)
    assert before - members(world) == 5 * within
    assert [bool(report.held) for report in reports] == [False] * within + [True] * 4


def test_batches_of_terminations_meet_one_budget(world_of: WorldOf) -> None:
    world = world_of(32, 1)
    waldur = world.waldur
    results = []
    for first in range(0, 30, 10):
        for uuid in waldur.seed.resource_uuids[first : first + 10]:
            waldur.orders.place_terminate(uuid)
        results.append(passes.process_orders(world.site).counted())
    standing = [name for name in world.cluster.accounts if name.startswith("a_")]
    assert len(standing) == 32 - EMPTIED
    assert results == [{"done": 10}, {"waiting": 10}, {"waiting": 20}]


def test_members_of_many_accounts_who_are_replaced_by_a_stranger_stay(world_of: WorldOf) -> None:
    world = world_of(25, 2)
    emptied(world)
    for number in range(25):
        world.join("stranger", project=number)
    report = world.sync()
    assert len(report.held) == 1
    assert len({m for m in world.cluster.associations if m.user != "stranger"}) == 50


def test_many_pauses_at_once_wait_and_a_few_do_not(world_of: WorldOf) -> None:
    world = world_of(30, 1, backend={"qos_paused": "stop", "qos_default": "normal"})
    uuids = world.waldur.seed.resource_uuids
    for uuid in uuids[:3]:
        world.change(uuid, paused=True)
    assert world.sync().held == ()

    def closed() -> int:
        return sum("stop" in account.qos for account in world.cluster.accounts.values())

    before = closed()
    for uuid in uuids:
        world.change(uuid, paused=True)
    report = world.sync()
    assert before == 3 and closed() == 3 and len(report.held) == 1, [p.reason for p in report.held]


def test_many_accounts_moved_at_once_wait(world_of: WorldOf) -> None:
    world = world_of(30, 1)
    accounts = {
        name: replace(a, parent="root") if name.startswith("a_") else a
        for name, a in world.cluster.accounts.items()
    }
    world.backend.state = replace(world.cluster, accounts=accounts)
    report = world.sync()
    assert len(report.held) == 1
    assert {a.parent for a in world.cluster.accounts.values() if a.name.startswith("a_")} == {"root"}


def test_many_limits_cut_to_just_above_what_is_used_wait(world_of: WorldOf) -> None:
    world = world_of(60, 1, limits_source="waldur")
    limited = {
        name: replace(a, limits={"cpu": 90_000, "mem": 200_000_000}) if name.startswith("a_") else a
        for name, a in world.cluster.accounts.items()
    }
    used = {name: {"cpu": 10, "mem": 10} for name in limited}
    world.backend.state = replace(world.cluster, accounts=limited, used=used)
    report = world.sync()
    cut = [a for a in world.cluster.accounts.values() if a.limits.get("cpu", 90_000) < 90_000]
    assert cut == [] and len(report.held) == 1, report.as_json()["resources"][:2]


@HOW
def test_many_accounts_that_would_take_no_jobs_wait(world_of: WorldOf, how: str) -> None:
    """Where QoS are not exchanged a pause blocks submission."""
    world = world_of(24, 1, backend={"qos_management": {"skip_qos_swap": True}})
    pause_all(world, paused=True)
    reports = reconciled(world, how)
    blocked = [name for name, account in world.cluster.accounts.items() if account.submit_limit == 0]
    assert len(blocked) == (BUDGETS[Cost.ACCOUNTS_BLOCKED].hour if how == "by events" else 0)
    assert "would be blocked" in reports[-1].held[0].reason
    assert {action.verb for plan in world.sync().held for action in plan.actions} == {"block submission"}
    assert len([a for a in world.cluster.accounts.values() if a.submit_limit == 0]) == len(blocked)


@HOW
def test_limits_of_many_users_that_fall_to_nothing_wait(world_of: WorldOf, how: str) -> None:
    world = world_of(6, 10)
    waldur = world.waldur
    for resource in map(world.resource, waldur.seed.resource_uuids):
        for username in waldur.seed.members[resource.project_uuid]:
            waldur.site.add_user_limit(resource.uuid, username, component_type="cpu", limit=0)
    reports = reconciled(world, how)
    limited = dict(world.cluster.user_limits)
    assert len(limited) == (BUDGETS[Cost.LIMITS_CUT].hour if how == "by events" else 0)
    assert "users would be lowered" in reports[-1].held[0].reason
    assert {action.verb for plan in world.sync().held for action in plan.actions} == {"set limits of user"}
    assert world.cluster.user_limits == limited


def busy(world: World) -> None:
    """Each member has a job in each account."""
    users = {(each.account, each.user): 1 for each in world.cluster.associations}
    jobs = Counter(account for account, _ in users)
    world.backend.state = replace(world.cluster, active_users=users, active_jobs=jobs)


@HOW
def test_jobs_of_many_who_leave_go_on_while_that_waits(world_of: WorldOf, how: str) -> None:
    world = world_of(PROJECTS, 2)
    busy(world)
    emptied(world)
    reports = reconciled(world, how)
    assert reports[-1].held
    left = 2 * (PROJECTS - EMPTIED if how == "by events" else PROJECTS)
    assert (len(world.cluster.active_users), members(world)) == (left, left)
    assert {action.verb for plan in world.sync().held for action in plan.actions} == {
        "block member",
        "cancel jobs",
        "remove member",
    }
    assert (len(world.cluster.active_users), members(world)) == (left, left)
    inside = {(each.account, each.user) for each in world.cluster.associations}
    assert world.backend.memory.blocked_members.isdisjoint(inside)


def test_jobs_of_many_allocations_that_end_go_on_while_that_waits(world_of: WorldOf) -> None:
    world = world_of(14, 2)
    busy(world)
    for uuid in world.waldur.seed.resource_uuids[:12]:
        world.waldur.orders.place_terminate(uuid)
    assert passes.process_orders(world.site).counted() == {"waiting": 12}
    assert len(world.cluster.active_users) == members(world) == 28
    assert {account.submit_limit for account in world.cluster.accounts.values()} == {None}


@HOW
def test_default_accounts_of_many_who_leave_stay_while_that_waits(world_of: WorldOf, how: str) -> None:
    """They are in the root account as well, which would become their default."""
    world = world_of(PROJECTS, 2)
    before = dict(world.cluster.default_accounts)
    for user, account in before.items():
        world.stray(user, "root", default=account)
    emptied(world)
    reports = reconciled(world, how)
    assert reports[-1].held
    moved = 2 * EMPTIED if how == "by events" else 0
    now = dict(world.cluster.default_accounts)
    assert [now[user] for user in before if now[user] != before[user]] == ["root"] * moved
    verbs = {action.verb for plan in world.sync().held for action in plan.actions}
    assert verbs >= {"move default account", "remove member"}
    assert world.cluster.default_accounts == now


def test_one_allocation_that_is_closed_to_its_members_needs_no_second_word(world_of: WorldOf) -> None:
    world = world_of(3, 60)
    world.change(world.waldur.seed.resource_uuids[0], restrict_member_access=True)
    assert world.sync().held == ()
    assert members(world) == 120


def test_the_end_of_one_project_needs_no_second_word(world_of: WorldOf) -> None:
    world = world_of(4, 6, allocations=3)
    for uuid in world.waldur.seed.resource_uuids[:3]:
        world.waldur.orders.place_terminate(uuid)
    assert passes.process_orders(world.site).counted() == {"done": 3}


# An answer that is empty by mistake ---------------------------------------------------------------


def test_one_empty_listing_forgets_nothing_and_one_that_stays_is_believed(
    world_of: WorldOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(12, 2)
    site = world.site
    emptied(world)
    (plan,) = world.sync().held
    approve(world.site, Mode.MEMBERSHIP_SYNC, plan.id)
    named = ledger.of_offering(site.state_dir, world.backend.cluster, site.offering.uuid)
    assert len(named) == 12
    nothing = Fault(path="marketplace-provider-resources", status=200, body="[]", times=None)
    world.waldur.inject(nothing)
    assert world.sync().error is None
    held = HeldPlans(site.state_dir, site.offering, Mode.MEMBERSHIP_SYNC)
    assert [each.id for each in held.waiting()] == [plan.id]
    assert [each.plan for each in held.approvals.open()] == [plan.id]
    assert ledger.of_offering(site.state_dir, world.backend.cluster, site.offering.uuid) == named
    monkeypatch.setattr(empty_answers, "BELIEVED_AFTER", timedelta(0))
    assert world.sync().error is None
    assert held.waiting() == [] and held.approvals.open() == []
    # Whole listings have to lack a name for an hour of their own.
    assert ledger.of_offering(site.state_dir, world.backend.cluster, site.offering.uuid) == named
    monkeypatch.setattr(ledger, "BELIEVED_AFTER", timedelta(0))
    world.sync()
    assert ledger.of_offering(site.state_dir, world.backend.cluster, site.offering.uuid) == frozenset()


# What a review found ------------------------------------------------------------------------------


def pause_all(world: World, *, paused: bool) -> None:
    for uuid in world.waldur.seed.resource_uuids:
        world.change(uuid, paused=paused)


def test_an_approval_is_for_one_act_and_the_same_again_waits_again(world_of: WorldOf) -> None:
    world = world_of(30, 1, backend={"qos_paused": "stop", "qos_default": "normal"})
    pause_all(world, paused=True)
    approve(world.site, Mode.MEMBERSHIP_SYNC, world.sync().held[0].id)
    assert world.sync().held == ()
    pause_all(world, paused=False)
    assert world.sync().held == ()
    pause_all(world, paused=True)
    assert len(world.sync().held) == 1


def test_a_plan_over_budget_outlives_a_team_that_cannot_be_read(world_of: WorldOf) -> None:
    """The budget's hour is over by then: nothing but the plan itself holds it."""
    world = world_of(14, 2)
    emptied(world)
    assert any(report.held for report in events(world))
    (plan,) = world.sync().held
    with Store(world.site.state_dir).write() as db:
        db.run("DELETE FROM charges")
    assert [each.id for each in world.sync().held] == [plan.id]
    world.waldur.inject(Fault(path="/team", status=500, times=None))
    world.sync()
    world.waldur.faults.clear()
    before = members(world)
    assert [each.id for each in world.sync().held] == [plan.id]
    assert members(world) == before


def test_orders_over_budget_outlive_one_empty_list(world_of: WorldOf) -> None:
    world = world_of(16, 1)
    waldur = world.waldur
    for first, last in ((0, 10), (10, 15)):
        for uuid in waldur.seed.resource_uuids[first:last]:
            waldur.orders.place_terminate(uuid)
        passes.process_orders(world.site)
    with Store(world.site.state_dir).write() as db:
        db.run("DELETE FROM charges")
    waldur.inject(Fault(path="marketplace-orders", status=200, body="[]", times=None))
    assert passes.process_orders(world.site).error is None
    waldur.faults.clear()
    assert passes.process_orders(world.site).counted() == {"waiting": 5}
