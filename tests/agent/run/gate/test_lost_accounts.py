# SPDX-License-Identifier: MIT
"""A cluster that has lost accounts: it is the site's fault, and made again where a person approves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from agent.config.model import Mode
from agent.core.associations import Association
from agent.core.errors import AccountsLost
from agent.core.model import Account, Snapshot
from agent.run import engine, passes
from agent.run.membership import rebuild
from agent.state import ledger
from agent.state.held_plans import HeldPlans
from agent.state.store import Store
from simulator.server.faults import Fault
from simulator.world.records import OrderState, ResourceState
from tests.agent.run.gate.floods import WorldOf, events, members, world_of
from tests.world import World, approve

__all__ = ["world_of"]

pytestmark = pytest.mark.safety

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


def test_an_emptied_database_is_the_sites_fault_and_no_other(world_of: WorldOf) -> None:
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
        approve(world.site, rebuild.KEY, plan.id)
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
        approve(world.site, rebuild.KEY, plan.id)
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
