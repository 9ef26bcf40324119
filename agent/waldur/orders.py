# SPDX-License-Identifier: MIT
"""Orders: which ones wait for us, and what became of them.

The state calls are not repeated blindly: a second `set_state_done` answers 409, so after a 409 the order is
read and the call counts as done when the state is the wanted one.
"""

from __future__ import annotations

from agent.core.errors import WaldurError
from agent.core.model import Order, OrderState
from agent.waldur import records
from agent.waldur.client import OLDEST_FIRST, WaldurClient

# A list, not StrEnum order: the states that an agent acts on.
ACTIONABLE = (OrderState.PENDING_PROVIDER, OrderState.EXECUTING)
FIELDS = (
    "uuid", "type", "state", "marketplace_resource_uuid", "resource_name", "project_slug",
    "plan_uuid", "limits", "attributes", "created",
)  # fmt: skip


def actionable(client: WaldurClient, states: tuple[OrderState, ...] = ACTIONABLE) -> list[Order]:
    """Return orders of the offering in `states`, oldest first."""
    params = [("offering_uuid", client.offering_uuid), *(("state", s.value) for s in states)]
    params += [("field", name) for name in FIELDS]
    items = client.pages("marketplace-orders/", params, order=OLDEST_FIRST)
    return [records.order(item) for item in items]


def get(client: WaldurClient, order_uuid: str) -> Order:
    params = [("offering_uuid", client.offering_uuid), *(("field", name) for name in FIELDS)]
    return records.order(client.get(f"marketplace-orders/{order_uuid}/", params))


def approve(client: WaldurClient, order_uuid: str) -> None:
    """Approve an order; the caller reads the state afterwards, which need not be `executing` (a start date ahead)."""
    _move(client, order_uuid, "approve_by_provider", {}, ends_in=OrderState.EXECUTING)


def complete(client: WaldurClient, order_uuid: str) -> None:
    _move(client, order_uuid, "set_state_done", {}, ends_in=OrderState.DONE)


def fail(client: WaldurClient, order_uuid: str, message: str, traceback: str = "") -> None:
    """Set an order erred. Both keys are sent always: the server answers 500 where one is missing (8.0).

    Waldur does not look at the order's state here, and flips a healthy resource for an order that is done: so
    only an order that is executing now is failed. Raises WaldurError with 409 for any other.
    """
    path = f"marketplace-orders/{order_uuid}/set_state_erred/"
    state = get(client, order_uuid).state
    if state is not OrderState.EXECUTING:
        raise WaldurError(
            f"order {order_uuid} is {state} now: not failed", method="POST", path=path, status=409
        )
    body = {"error_message": message, "error_traceback": traceback}
    client.post(path, body)


def _move(client: WaldurClient, order_uuid: str, action: str, body: object, *, ends_in: OrderState) -> None:
    try:
        client.post(f"marketplace-orders/{order_uuid}/{action}/", body)
    except WaldurError as error:
        if error.status != 409 or get(client, order_uuid).state is not ends_in:
            raise
