# SPDX-License-Identifier: MIT
"""Whose accounts passes change: those that this host knows to be ours, and never those that Waldur merely names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.associations import Association
from agent.core.model import Account
from agent.core.ownership import Origin
from agent.core.scope import EVERYTHING
from agent.run import passes
from agent.run.handed_on import AccountsInStep
from agent.run.membership.mode import Members
from agent.run.results import PassReport
from agent.state import ledger
from agent.state.store import NAME, Store
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState
from simulator.world.seed import Scenario
from tests.agent.run.gate.foreign_accounts import PEOPLE, adopt, named, origins, physics, questions, world
from tests.agent.state.obstacles import block, unblock
from tests.one_mode import looked
from tests.world import World

__all__ = ["named", "world"]

pytestmark = pytest.mark.safety


def plainly(world: World, _resource: str) -> PassReport:
    return world.sync()


def closed_to_members(world: World, resource: str) -> PassReport:
    world.change(resource, restrict_member_access=True)
    return world.sync()


def by_an_event(world: World, resource: str) -> PassReport:
    world.change(resource, restrict_member_access=True)
    return world.sync(resource=resource)


def paused(world: World, resource: str) -> PassReport:
    world.change(resource, paused=True)
    return world.sync()


def terminated(world: World, resource: str) -> PassReport:
    world.waldur.orders.place_terminate(resource)
    return passes.process_orders(world.site)


def lowered(world: World, resource: str) -> PassReport:
    world.waldur.orders.place_update(resource, {"cpu": 1})
    return passes.process_orders(world.site)


def made_once_more(world: World, _resource: str) -> PassReport:
    project = world.waldur.seed.project_uuids[0]
    order = world.waldur.place_create_order(project, "again", limits={"cpu": 1}, slug="again")
    world.change(world.waldur.order(order).resource_uuid, backend_id="physics")
    return passes.process_orders(world.site)


WAYS: list[Callable[[World, str], PassReport]] = [
    plainly, closed_to_members, by_an_event, paused, terminated, lowered, made_once_more
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_waldur_merely_names_is_held_once_and_stays_as_it_is(
    world: World, named: str, way: Callable[[World, str], PassReport]
) -> None:
    before = physics(world)
    report = way(world, named)
    assert physics(world) == before
    assert (report.error, len(report.held)) == (None, 1), [plan.reason for plan in report.held]
    assert questions(world) == [
        "adopt account physics, below root, 100 members, limits cpu=60000, 3 active jobs"
    ]
    way(world, named)
    world.sync()
    passes.process_orders(world.site)
    assert physics(world) == before
    assert len(questions(world)) == 1, "whatever asks for it, it is one question"
    assert not any(o.state is OrderState.ERRED for o in world.waldur.orders.all())


def test_an_account_that_is_adopted_is_judged_like_any_other(world: World, named: str) -> None:
    world.sync()
    adopt(world)
    report = world.sync()
    assert origins(world)["physics"] is Origin.ADOPTED
    assert questions(world) == []
    assert "100 of the 100 members of physics would be removed at once" in report.held[0].reason
    assert world.cluster.users_of("physics") >= PEOPLE
    assert world.cluster.accounts["physics"].parent == "p_project-1-1", "it is ours: it has a place"


def test_no_group_is_made_for_an_account_that_is_not_ours(world: World, named: str) -> None:
    step = looked(world.site, Mode.MEMBERSHIP_SYNC, Members, EVERYTHING).result(AccountsInStep)
    assert step is None or step.desired.members == {}


def test_an_account_with_others_below_it_fails_an_order_of_any_kind(world: World) -> None:
    """The account of a customer, with all projects below it."""
    resource, other = world.allocate("one"), world.allocate("two")
    world.change(resource, backend_id="c_kask-institute-1")
    world.change(other, backend_id="c_kask-institute-1")
    before = world.backend.state
    update = world.waldur.orders.place_update(resource, {"cpu": 1})
    end = world.waldur.orders.place_terminate(other)
    project = world.waldur.seed.project_uuids[0]
    create = world.waldur.place_create_order(project, "new", limits={"cpu": 1}, slug="new")
    world.change(world.waldur.order(create).resource_uuid, backend_id="c_kask-institute-1")
    passes.process_orders(world.site)
    assert world.backend.state.accounts == before.accounts
    for order in (update, end, create):
        found = world.waldur.order(order)
        assert (found.state, "has accounts below it" in found.error_message) == (OrderState.ERRED, True)


@pytest.mark.parametrize("kind", ["create", "restore"])
def test_orders_that_make_accounts_that_stand_meet_the_budgets(world: World, kind: str) -> None:
    """Sixty accounts with people in them, from 60,000 minutes to 60, with 50,000 used."""
    names = [f"full{n}" for n in range(60)]
    resources = world.allocate_all(*names, cpu=1000)
    used = {f"a_{name}": {"cpu": 50_000} for name in names}
    world.backend.state = replace(world.cluster, used=used)
    orders = []
    project = world.waldur.seed.project_uuids[0]
    for name, resource in zip(names, resources, strict=True):
        if kind == "create":
            order = world.waldur.place_create_order(project, f"{name}x", limits={"cpu": 1}, slug=f"{name}x")
            world.change(world.waldur.order(order).resource_uuid, backend_id=f"a_{name}")
            world.change(resource, state="Terminated")
        else:
            world.change(resource, state="Terminated")
            order = world.waldur.orders.place_restore(resource)
            world.waldur.site.change("orders", order, limits={"cpu": 1})
        orders.append(order)
    report = passes.process_orders(world.site)
    assert {a.limits["cpu"] for a in world.cluster.accounts.values() if a.name.startswith("a_full")} == {
        60_000
    }
    assert report.counted()["done"] == 0, report.counted()
    assert all(not world.waldur.order(order).error_message for order in orders)


# The ledger itself ------------------------------------------------------------------------------------


def test_what_is_made_is_written_down_before_it_is(world: World) -> None:
    """Killed right then, the next pass goes on with it."""
    project = world.waldur.seed.project_uuids[0]
    world.waldur.place_create_order(project, "one", limits={"cpu": 1}, slug="one")
    world.backend.outage = lambda call: call == "apply"
    passes.process_orders(world.site)
    assert "a_one" not in world.cluster.accounts
    assert origins(world)["a_one"] is Origin.MADE
    world.backend.outage = lambda _call: False
    assert passes.process_orders(world.site).counted() == {"done": 1}


def test_an_end_that_was_seen_leaves_nothing(world: World) -> None:
    """An operator makes an account of that name by hand: it is not ours."""
    resource = world.allocate("one")
    world.converge()
    world.waldur.orders.place_terminate(resource)
    assert passes.process_orders(world.site).counted() == {"done": 1}
    assert "a_one" not in origins(world)


def lost(world: World) -> None:
    for file in world.site.state_dir.glob(f"{NAME}*"):
        file.unlink()


def of_another_cluster(world: World) -> None:
    with Store(world.site.state_dir).write() as db:
        db.run("UPDATE ledger_accounts SET cluster = 'other'")
        db.run("UPDATE ledgers SET cluster = 'other'")


def of_yesterday(world: World) -> None:
    """A copy from before the account was made."""
    with Store(world.site.state_dir).write() as db:
        db.run("DELETE FROM ledger_accounts WHERE account IN ('a_one', 'a_two')")


@pytest.mark.parametrize("what", [lost, of_another_cluster, of_yesterday], ids=lambda what: what.__name__)
def test_losing_the_ledger_makes_nothing_foreign_that_has_the_prefix(
    world: World, what: Callable[[World], None]
) -> None:
    first, _ = world.allocate("one"), world.allocate("two")
    world.converge()
    what(world)
    world.leave(world.waldur.seed.members[world.waldur.seed.project_uuids[0]][0])
    world.waldur.orders.place_terminate(first)
    assert passes.process_orders(world.site).counted() == {"done": 1}
    assert world.sync().held == ()
    assert questions(world) == []
    assert len(world.cluster.users_of("a_two")) == 1


def test_a_switch_with_accounts_of_three_prefixes_asks_nothing(tmp_path: Path) -> None:
    scenario = Scenario(
        projects_per_customer=100, members_per_project=2, allocations_per_project=5,
        allocation_limits={"cpu": 1000, "mem": 2000},
    )  # fmt: skip
    with SimulatedWaldur(scenario=scenario) as waldur:
        world = World(waldur, tmp_path)
        world.fill()
        report = world.sync()
        assert (report.error, report.held, report.refused) == (None, (), ())
        assert questions(world) == []
        found = origins(world)
        assert len(found) == 500 + 100 + 1
        assert set(found.values()) == {Origin.FOUND}


def test_an_account_made_by_hand_with_our_prefix_is_a_question(world: World) -> None:
    """Made after the offering was first seen, and called by no name that the agent would give."""
    resource = world.allocate("one")
    world.converge()
    state = world.backend.state
    made = Account("a_byhand", "p_project-1-1")
    world.backend.state = replace(
        state,
        accounts={**state.accounts, "a_byhand": made},
        associations=state.associations | {Association("a_byhand", user) for user in ("x", "y", "z")},
    )
    world.change(resource, backend_id="a_byhand", restrict_member_access=True)
    report = world.sync()
    assert [plan.scope for plan in report.held] == ["account a_byhand"]
    assert world.cluster.users_of("a_byhand") == {"x", "y", "z"}


def test_what_another_head_node_has_made_is_ours(world: World, tmp_path: Path) -> None:
    """Each has a ledger of its own. The name is the one that the agent gives, at the place where it puts it."""
    world.allocate("one")
    world.converge()
    here = world.site
    other = replace(here, state_dir=tmp_path / "other")
    world.site = other
    world.converge()
    (resource,) = world.place("two")
    world.processed(done=1)
    world.site = here
    world.waldur.orders.place_update(resource, {"cpu": 100})
    assert passes.process_orders(world.site).counted() == {"done": 1}
    world.sync()
    assert origins(world)["a_two"] is Origin.FOUND


def test_two_offerings_with_the_same_prefix_do_not_take_each_others_accounts(
    world: World, tmp_path: Path
) -> None:
    world.converge()
    first = world.site
    second = replace(first, offering=replace(first.offering, uuid="f" * 32, name="Second"))
    ledger.write(first.state_dir, "memory", second.offering, {}, is_seen=True)
    (resource,) = world.place("one")
    world.processed(done=1)
    world.converge()
    assert origins(world)["a_one"] is Origin.MADE
    found = ledger.read(first.state_dir, "memory", second.offering.uuid)
    assert found.made_by_others["a_one"] == f"offering {first.offering.name}"
    assert not found.is_ours("a_one")
    assert world.resource(resource).backend_id == "a_one"


def test_without_a_prefix_what_stands_where_the_agent_puts_it_is_found_at_the_first_look(
    tmp_path: Path,
) -> None:
    with SimulatedWaldur(scenario=Scenario(members_per_project=2)) as waldur:
        world = World(waldur, tmp_path, backend=dict.fromkeys(PREFIXES, ""))
        world.allocate("one")
        world.converge()
        lost(world)
        world.leave(world.waldur.seed.members[world.waldur.seed.project_uuids[0]][0])
        assert world.sync().held == ()
        assert origins(world)["one"] is Origin.FOUND


PREFIXES = ("customer_prefix", "project_prefix", "allocation_prefix")


def test_where_nothing_can_be_written_accounts_are_made_and_found_again(world: World) -> None:
    world.allocate("zero")
    world.converge()
    block(world.site.state_dir)
    world.place("one")
    world.processed(done=1)
    unblock(world.site.state_dir)
    world.converge()
    assert origins(world)["a_one"] is Origin.FOUND
