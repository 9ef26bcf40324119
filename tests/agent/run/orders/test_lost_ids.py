# SPDX-License-Identifier: MIT
"""Terminate and update orders of resources whose backend id Waldur lost, though their account stands."""

from __future__ import annotations

import pytest

from agent.core.errors import WaldurError
from agent.core.model import OrderType
from agent.run import passes
from agent.run.orders import facts as order_facts
from agent.run.orders.naming import AccountNaming, AccountUnknown
from agent.run.site import Site
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.orders.conftest import SiteFactory

Found = dict[str, str | type[Exception]]


def made(waldur: SimulatedWaldur, site: Site, *slugs: str) -> list[str]:
    """Allocations of one project that stand; the uuids of their resources."""
    placed = [
        waldur.place_create_order(waldur.seed.project_uuids[0], slug, limits={"cpu": 1}, slug=slug)
        for slug in slugs
    ]
    assert passes.process_orders(site).counted() == {"done": len(placed)}
    return [waldur.order(order).resource_uuid for order in placed]


def lose(waldur: SimulatedWaldur, *uuids: str) -> None:
    for uuid in uuids:
        waldur.site.change("resources", uuid, backend_id="")


def found(waldur: SimulatedWaldur, site: Site) -> Found:
    """Resource -> the account that its order is carried out on, or why it waits."""
    waiting = order_facts.actionable(site)
    facts = order_facts.gather(site, waiting)
    cases, left = AccountNaming(site, facts.rules, site.backend.observe()).with_lost_accounts(facts.cases)
    known: Found = {case.resource.uuid: case.resource.backend_id for case in cases}
    by_order = {order.uuid: order.resource_uuid for order in waiting}
    return known | {by_order[uuid]: type(error) for uuid, error in left.items()}


@pytest.fixture
def by_project(waldur: SimulatedWaldur) -> None:
    options = {"account_name_generation_policy": "project_slug"}
    waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options=options)


@pytest.mark.parametrize("kind", [OrderType.TERMINATE, OrderType.UPDATE])
def test_an_account_under_the_resources_own_name_is_found(
    waldur: SimulatedWaldur, in_memory: SiteFactory, kind: OrderType
) -> None:
    """The termination was done and the account stayed, with its members."""
    site = in_memory()
    one, two = made(waldur, site, "one", "two")
    lose(waldur, one, two)
    if kind is OrderType.TERMINATE:
        waldur.orders.place_terminate(one)
    else:
        waldur.orders.place_update(one, {"cpu": 2})
    assert found(waldur, site) == {one: "a_one"}


def test_an_account_that_another_resource_names_is_not_taken_for_ours(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    site = in_memory()
    one, two = made(waldur, site, "one", "two")
    waldur.site.change("resources", two, backend_id="a_one")
    lose(waldur, one)
    waldur.orders.place_terminate(one)
    assert found(waldur, site) == {one: ""}


def test_an_account_below_another_project_is_not_taken_for_ours(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    site = in_memory()
    (one,) = made(waldur, site, "one")
    lose(waldur, one)
    waldur.orders.place_terminate(one)
    waldur.site.change("projects", waldur.seed.project_uuids[0], slug="moved")
    assert found(waldur, site) == {one: ""}


def test_a_resource_that_never_had_an_account_has_none(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    site = in_memory()
    refused = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": -1}, slug="one")
    assert passes.process_orders(site).counted() == {"failed": 1}
    uuid = waldur.order(refused).resource_uuid
    waldur.orders.place_terminate(uuid)
    assert found(waldur, site) == {uuid: ""}
    assert passes.process_orders(site).counted() == {"done": 1}


@pytest.mark.usefixtures("by_project")
def test_a_counted_name_is_known_by_what_the_others_have(
    waldur: SimulatedWaldur, in_memory: SiteFactory
) -> None:
    site = in_memory()
    _, two, _ = made(waldur, site, "one", "two", "three")
    lose(waldur, two)
    waldur.orders.place_terminate(two)
    assert found(waldur, site) == {two: "a_project-1-1-0"}


@pytest.mark.usefixtures("by_project")
@pytest.mark.parametrize("stands", [True, False], ids=["its own account stands", "it never had one"])
def test_where_two_resources_lack_their_ids_no_account_is_guessed_to_go(
    waldur: SimulatedWaldur, in_memory: SiteFactory, stands: bool
) -> None:
    site = in_memory()
    one, two = made(waldur, site, "one", "two")
    lose(waldur, two)
    ending = one
    if stands:
        lose(waldur, one)
    else:
        bad = waldur.place_create_order(waldur.seed.project_uuids[0], "bad", limits={"cpu": -1})
        assert passes.process_orders(site).counted() == {"failed": 1}
        ending = waldur.order(bad).resource_uuid
    waldur.orders.place_terminate(ending)
    assert found(waldur, site) == {ending: AccountUnknown}


def test_who_cannot_ask_waits(waldur: SimulatedWaldur, in_memory: SiteFactory) -> None:
    site = in_memory()
    (one,) = made(waldur, site, "one")
    lose(waldur, one)
    waldur.orders.place_terminate(one)
    waldur.inject(
        Fault(path="check_unique_backend_id", status=403, body="{}", content_type="application/json")
    )
    assert found(waldur, site) == {one: WaldurError}


def test_what_has_its_backend_id_costs_no_request(waldur: SimulatedWaldur, in_memory: SiteFactory) -> None:
    site = in_memory()
    one, two = made(waldur, site, "one", "two")
    waldur.orders.place_terminate(one)
    waldur.orders.place_update(two, {"cpu": 2})
    facts = order_facts.gather(site, order_facts.actionable(site))
    waldur.requests.reset()
    cases, left = AccountNaming(site, facts.rules, site.backend.observe()).with_lost_accounts(facts.cases)
    assert (cases, left, waldur.requests.count()) == (list(facts.cases), {}, 0)
