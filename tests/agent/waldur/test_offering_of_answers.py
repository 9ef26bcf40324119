# SPDX-License-Identifier: MIT
"""What Waldur answers about another offering is not taken for ours: a filter that was not heeded is an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.core.errors import WaldurAnswerError
from agent.waldur import members, orders, resources
from agent.waldur.client import WaldurClient
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from tests.simulator.caller import Caller

OTHER = "ab" * 16


READS: dict[str, tuple[str, Callable[[WaldurClient, str], object]]] = {
    "orders": ("marketplace-orders/", lambda client, _: orders.actionable(client)),
    "one order": ("marketplace-orders/{}/", orders.get),
    "resources": ("marketplace-provider-resources/", lambda client, _: resources.listed(client, ())),
    "one resource": ("marketplace-provider-resources/{}/", resources.get),
    "names of resources": (
        "marketplace-provider-resources/",
        lambda client, _: resources.holders_of(client, "a_one"),
    ),
    "offering users": ("marketplace-offering-users/", lambda client, _: members.offering_users(client)),
}


@pytest.mark.parametrize("read", READS)
def test_an_answer_of_another_offering_is_an_error(
    waldur: SimulatedWaldur, client: WaldurClient, read: str
) -> None:
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 1}, slug="one")
    resource = waldur.order(order).resource_uuid
    waldur.site.change("resources", resource, backend_id="a_one")
    path, ask = READS[read]
    uuid = order if "order" in read else resource
    ask(client, uuid)
    query = {"backend_id": "a_one"} if read == "names of resources" else {}
    answer = Caller(waldur, "agent").get(path.format(uuid), **query)
    body = answer.text.replace(waldur.seed.offering_uuid, OTHER)
    assert OTHER in body
    waldur.inject(
        Fault(path=path.format(uuid), status=200, body=body, content_type="application/json", times=None)
    )
    with pytest.raises(WaldurAnswerError, match=f"of offering {OTHER}, and {waldur.seed.offering_uuid}"):
        ask(client, uuid)
