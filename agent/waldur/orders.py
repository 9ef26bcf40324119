# SPDX-License-Identifier: MIT
"""Orders: which ones wait for us, and what became of them.

The state calls are not repeated blindly: a second `set_state_done` answers 409, so after a 409 the order is
read and the call counts as done when the state is the wanted one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.core.errors import OrderErred, WaldurError
from agent.core.model import Order, OrderState
from agent.core.waldur_actions import ApproveOrder, CompleteOrder, FailOrder, RejectOrder, WaldurAction
from agent.waldur import pool, records
from agent.waldur.client import OLDEST_FIRST, Request, WaldurClient
from agent.waldur.resources import LIST_FROM

# A list, not StrEnum order: the states that an agent acts on.
ACTIONABLE = (OrderState.PENDING_PROVIDER, OrderState.EXECUTING)
FIELDS = (
    "uuid", "type", "state", "marketplace_resource_uuid", "resource_name", "project_slug",
    "plan_uuid", "limits", "attributes", "created", "error_message", "offering_uuid",
)  # fmt: skip


def moved_on(order: Order) -> WaldurError:
    """Return the error for an order that Waldur does not want executed any more."""
    path = f"marketplace-orders/{order.uuid}/"
    if order.state is OrderState.ERRED:
        why = f": {order.error_message}" if order.error_message else ""
        return OrderErred(f"Waldur itself has set the order erred{why}", method="GET", path=path, status=409)
    return WaldurError(
        f"Waldur does not want it executed any more: it is {order.state}",
        method="GET",
        path=path,
        status=409,
    )


def actionable(client: WaldurClient, states: tuple[OrderState, ...] = ACTIONABLE) -> list[Order]:
    """Return orders of the offering in `states`, oldest first."""
    params = [("offering_uuid", client.offering_uuid), *(("state", s.value) for s in states)]
    params += [("field", name) for name in FIELDS]
    items = client.pages("marketplace-orders/", params, order=OLDEST_FIRST)
    return [records.order(records.of_offering(item, client.offering_uuid)) for item in items]


def done(client: WaldurClient, resource_uuid: str) -> list[Order]:
    """Return the orders of a resource that are done, oldest first. Raises WaldurError."""
    params = [
        ("offering_uuid", client.offering_uuid),
        ("resource_uuid", resource_uuid),
        ("state", OrderState.DONE.value),
        *(("field", name) for name in FIELDS),
    ]
    items = client.pages("marketplace-orders/", params, order=OLDEST_FIRST)
    found = [records.order(records.of_offering(item, client.offering_uuid)) for item in items]
    # A server that does not know the filter lists all of the offering.
    return [order for order in found if order.resource_uuid == resource_uuid]


def get(client: WaldurClient, order_uuid: str) -> Order:
    params = [("offering_uuid", client.offering_uuid), *(("field", name) for name in FIELDS)]
    answer = client.get(f"marketplace-orders/{order_uuid}/", params)
    return records.order(records.of_offering(answer, client.offering_uuid))


def again(client: WaldurClient, uuids: Iterable[str]) -> Mapping[str, Order | WaldurError]:
    """Read orders once more that were executing: many from one listing, and one by one those that it lacks."""
    wanted = set(uuids)
    found: dict[str, Order | WaldurError] = {}
    if len(wanted) >= LIST_FROM:
        try:
            listed = actionable(client, (OrderState.EXECUTING,))
        except WaldurError as error:
            return dict.fromkeys(wanted, error)
        found = {order.uuid: order for order in listed if order.uuid in wanted}
    return {**found, **pool.each(sorted(wanted - set(found)), lambda uuid: get(client, uuid))}


def approve(client: WaldurClient, order_uuid: str) -> None:
    """Approve an order; the caller reads the state afterwards, which need not be `executing` (a start date ahead)."""
    _move(client, order_uuid, "approve_by_provider", {}, ends_in=OrderState.EXECUTING)


def reject(client: WaldurClient, order_uuid: str, comment: str) -> None:
    """Reject an order that waits for approval. Waldur shows `comment` to its consumer; servers of 2024 take none."""
    body = {"provider_rejection_comment": comment} if comment else {}
    _move(client, order_uuid, "reject_by_provider", body, ends_in=OrderState.REJECTED)


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
        if error.status != 409:
            raise
        now = get(client, order_uuid)
        if now.state is OrderState.ERRED:
            raise moved_on(now) from error
        if now.state is not ends_in:
            raise


ACTIONS: Mapping[type[WaldurAction], Request] = {
    ApproveOrder: lambda client, a: approve(client, a.order),
    FailOrder: lambda client, a: fail(client, a.order, a.message),
    RejectOrder: lambda client, a: reject(client, a.order, a.message),
    CompleteOrder: lambda client, a: complete(client, a.order),
}
