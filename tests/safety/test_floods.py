# SPDX-License-Identifier: MIT
"""What many small passes may do together: no more than one large one. And what a person means needs no second word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.associations import Association
from agent.core.errors import AccountsLost, PassUnfinished
from agent.core.model import Account, Snapshot
from agent.core.policy import BUDGETS, Cost
from agent.run import engine, gate, passes
from agent.run.membership import rebuild
from agent.run.results import PassReport
from agent.run.scope import PassScope
from agent.state import empty_answers, ledger
from agent.state.held_plans import HeldPlans
from agent.state.store import Store
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState, ResourceState
from simulator.world.seed import Scenario
from tests.membership.world import World

WorldOf = Callable[..., World]


@pytest.fixture
def world_of(tmp_path: Path) -> Iterator[WorldOf]:
    """A world whose projects have one allocation each, all in step."""
    servers: list[SimulatedWaldur] = []

    def make(
        projects: int, members: int, *, allocations: int = 1, age: str = "8.0", **offering: Any
    ) -> World:
        server = SimulatedWaldur(
            age,
            scenario=Scenario(
                projects_per_customer=projects,
                members_per_project=members,
                allocations_per_project=allocations,
                allocation_limits={"cpu": 1000, "mem": 2000},
            ),
        )
        server.__enter__()
        servers.append(server)
        world = World(server, tmp_path, **offering)
        world.fill()
        return world

    yield make
    for server in servers:
        server.__exit__(None, None, None)


def members(world: World) -> int:
    return len({(each.account, each.user) for each in world.cluster.associations})


def emptied(world: World, count: int | None = None) -> None:
    """So many of each team, or all, have left."""
    for number, project in enumerate(world.waldur.seed.project_uuids):
        for username in world.waldur.seed.members[project][:count]:
            world.waldur.people.remove_member(world.waldur.seed.project_uuids[number], username)


def approve(world: World, plan: str, mode: str = Mode.MEMBERSHIP_SYNC) -> None:
    held = HeldPlans(world.site.state_dir, world.site.offering, mode)
    held.approvals.approve(plan, expires=datetime.now(UTC) + timedelta(hours=1), by="test")


def events(world: World) -> list[PassReport]:
    """A pass for each project, as an event about each brings one."""
    return [world.sync(project=project) for project in world.waldur.seed.project_uuids]


def test_teams_that_are_answered_empty_one_by_one_are_held_as_in_one_pass(world_of: WorldOf) -> None:
    world = world_of(40, 2)
    world.in_step()
    emptied(world)
    reports = events(world)
    limit = BUDGETS[Cost.ACCOUNTS_EMPTIED].hour
    assert members(world) == 80 - 2 * limit
    assert [bool(report.held) for report in reports] == [False] * limit + [True] * (40 - limit)
    assert "after 10 within the last hour" in reports[-1].held[0].reason
    whole = world.sync()
    assert members(world) == 80 - 2 * limit
    assert len(whole.held) == 1, [plan.reason for plan in whole.held]
    approve(world, whole.held[0].id)
    assert world.sync().held == ()
    assert members(world) == 0


def test_a_mass_departure_is_one_plan_that_goes_on_to_its_end_once_it_is_approved(world_of: WorldOf) -> None:
    """Two passes by events, one over everything; then passes that make way after each portion."""
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
    approve(world, plan.id)
    left = [members(world)]
    while left[-1] > 130:
        report = passes.sync_members(world.site, makes_way=lambda: True)
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
    world = world_of(20, 10)
    emptied(world, 5)
    reports = events(world)
    assert 200 - members(world) <= BUDGETS[Cost.MEMBERS_REMOVED].hour
    assert sum(bool(report.held) for report in reports) >= 10


def test_batches_of_terminations_meet_one_budget(world_of: WorldOf) -> None:
    world = world_of(32, 1)
    waldur = world.waldur
    results = []
    for first in range(0, 30, 10):
        for uuid in waldur.seed.resource_uuids[first : first + 10]:
            waldur.orders.place_terminate(uuid)
        results.append(passes.process_orders(world.site).counted())
    standing = [name for name in world.cluster.accounts if name.startswith("a_")]
    assert len(standing) == 32 - BUDGETS[Cost.ACCOUNTS_EMPTIED].hour
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


def told(world: World, how: str) -> list[PassReport]:
    """What Waldur has now reaches the cluster by one pass over everything, or by an event about each project."""
    return events(world) if how == "by events" else [world.sync()]


HOW = pytest.mark.parametrize("how", ["in one pass", "by events"])


@HOW
def test_many_accounts_that_would_take_no_jobs_wait(world_of: WorldOf, how: str) -> None:
    """Where QoS are not exchanged a pause blocks submission."""
    world = world_of(30, 1, backend={"qos_management": {"skip_qos_swap": True}})
    pause_all(world, paused=True)
    reports = told(world, how)
    blocked = [name for name, account in world.cluster.accounts.items() if account.submit_limit == 0]
    assert len(blocked) == (BUDGETS[Cost.ACCOUNTS_BLOCKED].hour if how == "by events" else 0)
    assert "would be blocked" in reports[-1].held[0].reason
    assert {action.verb for plan in world.sync().held for action in plan.actions} == {"block submission"}
    assert len([a for a in world.cluster.accounts.values() if a.submit_limit == 0]) == len(blocked)


@HOW
def test_limits_of_many_users_that_fall_to_nothing_wait(world_of: WorldOf, how: str) -> None:
    world = world_of(35, 2)
    waldur = world.waldur
    for resource in map(world.resource, waldur.seed.resource_uuids):
        for username in waldur.seed.members[resource.project_uuid]:
            waldur.site.add_user_limit(resource.uuid, username, component_type="cpu", limit=0)
    reports = told(world, how)
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
    world = world_of(40, 2)
    busy(world)
    emptied(world)
    reports = told(world, how)
    assert reports[-1].held
    ended = 2 * BUDGETS[Cost.ACCOUNTS_EMPTIED].hour if how == "by events" else 0
    assert (len(world.cluster.active_users), members(world)) == (80 - ended, 80 - ended)
    assert {action.verb for plan in world.sync().held for action in plan.actions} == {
        "block member",
        "cancel jobs",
        "remove member",
    }
    assert (len(world.cluster.active_users), members(world)) == (80 - ended, 80 - ended)
    left = {(each.account, each.user) for each in world.cluster.associations}
    assert world.backend.memory.blocked_members.isdisjoint(left)


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
    world = world_of(40, 2)
    before = dict(world.cluster.default_accounts)
    for user, account in before.items():
        world.stray(user, "root", default=account)
    emptied(world)
    reports = told(world, how)
    assert reports[-1].held
    moved = 2 * BUDGETS[Cost.ACCOUNTS_EMPTIED].hour if how == "by events" else 0
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


# A cluster that has lost its accounts --------------------------------------------------------------


@contextmanager
def emptied_database(world: World) -> Iterator[None]:
    """The accounting database as it is made anew."""
    before = world.cluster
    root = {"root": before.accounts["root"]}
    world.backend.state = replace(
        before, accounts=root, associations=frozenset[Association](), default_accounts={}
    )
    yield


def test_an_emptied_database_is_the_sites_fault_and_nobody_elses(world_of: WorldOf) -> None:
    world = world_of(6, 2)
    waldur = world.waldur
    resource = waldur.seed.resource_uuids[0]
    order = waldur.orders.place_update(resource, {"cpu": 2000, "mem": 2000})
    with emptied_database(world):
        for report in (passes.process_orders(world.site), world.sync()):
            assert isinstance(report.error, AccountsLost), report.as_json()
            assert "rebuild" in str(report.error)
        assert waldur.order(order).state in (OrderState.PENDING_PROVIDER, OrderState.EXECUTING)
        assert all(each.state is not ResourceState.ERRED for each in waldur.store.resources)
        assert set(world.cluster.accounts) == {"root"}


def test_accounts_that_orders_have_ended_are_not_lost(world_of: WorldOf) -> None:
    """Waldur does not take what was done: it names the accounts still, more than half of all."""
    world = world_of(19, 2)
    world.in_step()
    waldur = world.waldur
    orders = [waldur.orders.place_terminate(uuid) for uuid in waldur.seed.resource_uuids[:10]]
    waldur.inject(Fault(method="POST", path="set_state_done", status=503, times=None))
    assert passes.process_orders(world.site).counted() == {"retry": 10}
    assert world.sync(project=waldur.seed.project_uuids[18]).error is None
    waldur.faults.clear()
    assert passes.process_orders(world.site).counted() == {"done": 10}
    assert {waldur.order(order).state for order in orders} == {OrderState.DONE}


def others_cluster(world: World, also: frozenset[str] = frozenset()) -> Snapshot:
    """Another site's cluster: accounts of which Waldur names none but `also`, and people of ours among the members."""
    names = {f"a_lab{number}" for number in range(3)} | also
    accounts = {"root": world.cluster.accounts["root"], "lab": Account("lab", "root")}
    accounts |= {name: Account(name, "lab", limits={"cpu": 5}) for name in names}
    people = {"zed", "ann", *(each.user for each in list(world.cluster.associations)[:4])}
    return replace(
        world.cluster,
        accounts=accounts,
        associations=frozenset(Association(name, user) for name in names for user in people),
        default_accounts=dict.fromkeys(people, "a_lab0"),
    )


@pytest.mark.parametrize("is_one_alike", [False, True], ids=["none of ours", "one of the same name"])
def test_a_cluster_that_holds_only_others_is_the_sites_fault(world_of: WorldOf, is_one_alike: bool) -> None:
    """Nothing is done there, to ours or to theirs, and all goes on once the cluster is the right one again."""
    world = world_of(16, 2)
    world.in_step()
    waldur = world.waldur
    changing, ending, *_, alike = waldur.seed.resource_uuids
    for uuid in (changing, alike):
        world.alter(world.resource(uuid).backend_id.lower(), limits={"cpu": 60_000, "mem": 61_440_000})
    orders = [
        waldur.orders.place_update(changing, {"cpu": 2000, "mem": 2000}),
        waldur.orders.place_update(alike, {"cpu": 2000, "mem": 2000}),
        waldur.orders.place_terminate(ending),
        waldur.place_create_order(waldur.seed.project_uuids[2], "new", limits={"cpu": 1}, slug="new"),
    ]
    right = world.cluster
    also = frozenset({world.resource(alike).backend_id.lower()} if is_one_alike else ())
    wrong = others_cluster(world, also)
    world.backend.state = wrong
    world.backend.applied.clear()
    reports = [passes.process_orders(world.site), world.sync()]
    reports += [passes.process_orders(world.site, order_uuid=order) for order in orders]
    reports += events(world)
    for report in reports:
        assert isinstance(report.error, AccountsLost), report.as_json()
        assert "is it another cluster?" in str(report.error)
        assert report.held == ()
    assert len(rebuild.run_pass(world.site).held) == 1
    assert (world.cluster, world.backend.applied) == (wrong, [])
    waiting = {OrderState.PENDING_PROVIDER, OrderState.EXECUTING}
    assert {waldur.order(order).state for order in orders} <= waiting
    assert all(each.state is not ResourceState.ERRED for each in waldur.store.resources)
    world.backend.state = right
    assert passes.process_orders(world.site).counted() == {"done": 4}
    world.sync()
    world.in_step()
    assert members(world) == 2 * 16


def test_accounts_that_were_lost_are_made_again_once_that_is_approved(world_of: WorldOf) -> None:
    world = world_of(6, 2)
    with emptied_database(world):
        (plan,) = rebuild.run_pass(world.site).held
        assert set(world.cluster.accounts) == {"root"}
        assert [held.id for held in rebuild.run_pass(world.site).held] == [plan.id]
        approve(world, plan.id, rebuild.KEY)
        report = rebuild.run_pass(world.site)
        assert report.counted() == {"done": 6}, report.as_json()
        assert members(world) == 12
        limits = {a.limits.get("cpu") for a in world.cluster.accounts.values() if a.name.startswith("a_")}
        assert limits == {60_000}
        world.in_step()
        assert rebuild.run_pass(world.site).resources == []


def lose(world: World, name: str) -> None:
    world.backend.state = replace(
        world.cluster,
        accounts={n: a for n, a in world.cluster.accounts.items() if n != name},
        associations=frozenset(a for a in world.cluster.associations if a.account != name),
    )


def test_a_sync_that_is_forced_in_waldur_makes_an_account_again(world_of: WorldOf) -> None:
    world = world_of(6, 2)
    resource = world.resource(world.waldur.seed.resource_uuids[0])
    name, team = resource.backend_id, members(world)
    lose(world, name)
    report = rebuild.run_forced(world.site)
    assert report.counted() == {"done": 1}, report.as_json()
    assert (world.cluster.accounts[name].limits["cpu"], members(world)) == (60_000, team)
    assert HeldPlans(world.site.state_dir, world.site.offering, rebuild.KEY).waiting() == []
    world.in_step()
    assert rebuild.run_forced(world.site).results == []


@pytest.mark.parametrize("is_ended", [True, False])
def test_what_an_order_ends_after_waldur_was_read_is_not_made_again(
    world_of: WorldOf, is_ended: bool
) -> None:
    world = world_of(6, 2)
    ending, lost = world.waldur.seed.resource_uuids[:2]
    for uuid in (ending, lost):
        lose(world, world.resource(uuid).backend_id)
    with engine.passing(world.site, Mode.MEMBERSHIP_SYNC, applies=False) as run:
        steps = rebuild.Rebuild(run)
    facts = steps.observe()
    assert set(steps.plan(facts).specs) == {ending, lost}
    world.waldur.orders.place_terminate(ending)
    if is_ended:
        assert passes.process_orders(world.site).counted() == {"done": 1}
    more = steps.refine(facts, steps.plan(facts))
    assert more is not None
    assert set(steps.plan(more).specs) == {lost}
    assert steps.refine(more, steps.plan(more)) is None


def test_a_forced_sync_after_the_loss_of_all_waits_for_a_person(world_of: WorldOf) -> None:
    world = world_of(6, 2)
    with emptied_database(world):
        for _ in range(2):
            (plan,) = rebuild.run_forced(world.site).held
            assert set(world.cluster.accounts) == {"root"}
        approve(world, plan.id, rebuild.KEY)
        assert rebuild.run_forced(world.site).counted() == {"done": 6}


def test_a_forced_sync_changes_nothing_in_a_pause(world_of: WorldOf) -> None:
    world = world_of(6, 2, policy={"paused": True})
    name = world.resource(world.waldur.seed.resource_uuids[0]).backend_id
    lose(world, name)
    assert rebuild.run_forced(world.site).counted() == {"waiting": 1}
    assert name not in world.cluster.accounts


def test_one_account_that_is_gone_stops_no_other(world_of: WorldOf) -> None:
    world = world_of(6, 2)
    name = world.resource(world.waldur.seed.resource_uuids[0]).backend_id
    lose(world, name)
    report = world.sync()
    assert report.error is None
    assert report.counted() == {"waiting": 1}


@pytest.mark.parametrize("remembered", [6, 1])
def test_no_account_is_made_on_a_cluster_that_has_lost_the_others(world_of: WorldOf, remembered: int) -> None:
    """Also where all but one of them were made after the last pass over members."""
    world = world_of(6, 2)
    world.in_step()
    waldur, site = world.waldur, world.site
    known = ledger.of_offering(site.state_dir, site.backend.cluster, site.offering.uuid)
    assert len(known) == 6
    with Store(site.state_dir).write() as db:
        for account in sorted(known)[remembered:]:
            db.run("DELETE FROM ledger_accounts WHERE account = ?", account)
    waldur.place_create_order(waldur.seed.project_uuids[0], "new", limits={"cpu": 1}, slug="new")
    with emptied_database(world):
        assert isinstance(passes.process_orders(world.site).error, AccountsLost)
        assert set(world.cluster.accounts) == {"root"}


# An answer that is empty by mistake ---------------------------------------------------------------


def test_one_empty_listing_forgets_nothing_and_one_that_stays_is_believed(
    world_of: WorldOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(12, 2)
    site = world.site
    emptied(world)
    (plan,) = world.sync().held
    approve(world, plan.id)
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
    approve(world, world.sync().held[0].id)
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
