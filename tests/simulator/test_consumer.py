# SPDX-License-Identifier: MIT
"""The consumer's side: placing orders through the API, with the checks that guard it."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import ComponentSpec, Scenario
from tests.simulator.caller import Caller
from tests.simulator.conftest import StartWaldur

_COMPONENTS = (
    ComponentSpec(type="cpu", name="CPU", measured_unit="h", min_value=1, max_value=100, price=2.0),
    ComponentSpec(type="gpu", name="GPU", measured_unit="h", billing_type="usage"),
)


@pytest.fixture
def waldur(start: StartWaldur) -> SimulatedWaldur:
    scenario = Scenario(components=_COMPONENTS, allocations_per_project=1, allocation_limits={"cpu": 10})
    return start("8.0", scenario=scenario)


@pytest.fixture
def consumer(waldur: SimulatedWaldur) -> Caller:
    return Caller(waldur, "consumer")


def _order_body(waldur: SimulatedWaldur, **more: Any) -> dict[str, Any]:
    seeded = waldur.seed
    offering = f"{waldur.url}marketplace-public-offerings/{seeded.offering_uuid}/"
    return {
        "offering": offering,
        "plan": f"{offering}plans/{seeded.plan_uuids[0]}/",
        "project": f"{waldur.url}projects/{seeded.project_uuids[0]}/",
        "attributes": {"name": "bought"},
        "limits": {"cpu": 5},
        **more,
    }


def test_an_owner_orders_and_the_provider_is_asked(waldur: SimulatedWaldur, consumer: Caller) -> None:
    answer = consumer.post("marketplace-orders/", _order_body(waldur, request_comment="please"))
    assert answer.status_code == 201
    order = answer.json()
    assert (order["state"], order["cost"], order["request_comment"]) == (
        "pending-provider",
        "10.0000000000",
        "please",
    )
    assert answer.headers["Location"] == order["url"]


def test_a_members_order_waits_for_its_owner(waldur: SimulatedWaldur, consumer: Caller) -> None:
    member = Caller(waldur, waldur.seed.members[waldur.seed.project_uuids[0]][0])
    order = member.post("marketplace-orders/", _order_body(waldur)).json()["uuid"]
    assert consumer.order(order)["state"] == "pending-consumer"
    assert member.move(order, "approve_by_consumer", {}) == 403
    assert consumer.move(order, "approve_by_consumer", {}) == 200
    assert consumer.order(order)["state"] == "pending-provider"
    assert consumer.move(order, "reject_by_consumer", {}) == 409


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"limits": {"cpu": 0}}, "non_field_errors"),
        ({"limits": {"cpu": 101}}, "non_field_errors"),
        ({"limits": {"gpu": 1}}, "limits"),
        ({"limits": {"nothing": 1}}, "limits"),
        ({"offering": "http://x/api/marketplace-public-offerings/0/"}, "offering"),
        ({"project": "http://x/api/projects/00000000000000000000000000000000/"}, "project"),
        ({"start_date": "tomorrow"}, "start_date"),
    ],
)
def test_refused_orders(
    waldur: SimulatedWaldur, consumer: Caller, change: dict[str, Any], field: str
) -> None:
    answer = consumer.post("marketplace-orders/", _order_body(waldur, **change))
    assert answer.status_code == 400
    assert list(answer.json()) == [field]


@pytest.mark.parametrize(
    ("action", "body", "shape"),
    [
        ("update_limits", {"limits": {"cpu": 10}}, list),
        ("update_limits", {"limits": {"cpu": 500}}, list),
        ("update_limits", {"limits": {"gpu": 5}}, dict),
        ("switch_plan", {"plan": "http://x/plans/0/"}, dict),
    ],
)
def test_refused_changes(
    waldur: SimulatedWaldur, consumer: Caller, action: str, body: Any, shape: type
) -> None:
    resource = waldur.seed.resource_uuids[0]
    answer = consumer.post(f"marketplace-resources/{resource}/{action}/", body)
    assert (answer.status_code, type(answer.json())) == (400, shape)


def test_one_pending_order_per_resource(waldur: SimulatedWaldur, consumer: Caller) -> None:
    base = f"marketplace-resources/{waldur.seed.resource_uuids[0]}"
    plan = f"{waldur.url}marketplace-plans/{waldur.seed.plan_uuids[1]}/"
    assert consumer.post(f"{base}/switch_plan/", {"plan": plan}).status_code == 200
    assert consumer.post(f"{base}/update_limits/", {"limits": {"cpu": 3}}).status_code == 400
    assert consumer.post(f"{base}/terminate/", {}).status_code == 400


def test_terminate_and_restore(waldur: SimulatedWaldur, consumer: Caller) -> None:
    agent, resource = Caller(waldur, "agent"), waldur.seed.resource_uuids[0]
    assert consumer.post(f"marketplace-resources/{resource}/restore/").status_code == 409
    for action, state in (("terminate", "Terminated"), ("restore", "OK")):
        order = consumer.post(f"marketplace-resources/{resource}/{action}/", {}).json()["order_uuid"]
        agent.move(order, "approve_by_provider", {})
        agent.move(order, "set_state_done")
        assert agent.resource(resource)["state"] == state


def test_the_consumers_view_is_not_the_providers(waldur: SimulatedWaldur, consumer: Caller) -> None:
    agent, resource = Caller(waldur, "agent"), waldur.seed.resource_uuids[0]
    assert consumer.read("marketplace-resources/")[0]["uuid"] == resource
    assert consumer.read("marketplace-provider-resources/") == []
    assert agent.get(f"marketplace-resources/{resource}/").status_code == 404
    assert consumer.get(f"marketplace-provider-resources/{resource}/").status_code == 404
    by_provider = agent.post(f"marketplace-provider-resources/{resource}/terminate/", {})
    assert agent.order(by_provider.json()["order_uuid"])["state"] == "pending-provider"
