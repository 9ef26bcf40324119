# SPDX-License-Identifier: MIT
"""Rights that the token's user lacks: each refused call names its own, and a page lists them all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.core.errors import WaldurError
from agent.waldur import offerings, orders, resources, rights
from agent.waldur.client import WaldurClient
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests import REPOSITORY
from tests.agent.waldur.clients import client_of

DOCS = REPOSITORY / "docs" / "rights.md"

Call = Callable[[WaldurClient, str, str], object]
CALLS: dict[str, Call] = {
    "ORDER.APPROVE": lambda client, order, _: orders.approve(client, order),
    "RESOURCE.SET_BACKEND_ID": lambda client, _, uuid: resources.set_backend_id(client, uuid, "a"),
    "RESOURCE.SET_BACKEND_METADATA": lambda client, _, uuid: resources.set_metadata(client, uuid, {"a": 1}),
    "RESOURCE.SET_STATE": lambda client, _, uuid: resources.set_limits(client, uuid, {"cpu": 1}),
    "RESOURCE.SET_USAGE": lambda client, _, uuid: client.post(
        "marketplace-component-usages/set_usage/",
        {"resource": uuid, "usages": [{"type": "cpu", "amount": 1}]},
    ),
    "OFFERING.UPDATE_COMPONENTS": lambda client, *_: offerings.create_component(
        client, {"type": "x", "name": "x", "billing_type": "usage"}
    ),
}


@pytest.mark.parametrize("right", CALLS)
def test_a_refused_call_names_the_right_that_is_missing(right: str) -> None:
    with SimulatedWaldur(scenario=Scenario(allocations_per_project=1)) as waldur:
        waldur.people.deny("agent", right)
        order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 1})
        with pytest.raises(WaldurError, match=f"lacks the right {right}: .*docs/rights.md") as caught:
            CALLS[right](client_of(waldur, attempts=1), order, waldur.seed.resource_uuids[0])
        assert caught.value.status == 403


def test_the_page_lists_every_right() -> None:
    page = DOCS.read_text()
    assert {right for _, right in rights.NEEDED if right != rights.OWNER} <= set(page.split("`"))
    assert "CUSTOMER.OWNER" in page
