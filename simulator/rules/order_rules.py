# SPDX-License-Identifier: MIT
"""How orders move, and what their moves do to the resource; callers have checked permissions.

A move from a wrong state is refused with 409. `set_erred` has no state check, as on the real server.
"""

from __future__ import annotations

from datetime import date

from simulator.rules import offering_user_rules, placing, processor
from simulator.rules.errors import detail, wrong_state
from simulator.world.records import Order, OrderState, OrderType, Resource, ResourceState, User
from simulator.world.store import Store

_CAN_EXECUTE = (OrderState.PENDING_CONSUMER, OrderState.PENDING_PROVIDER, OrderState.ERRED)
_CAN_CANCEL = (OrderState.PENDING_CONSUMER, OrderState.PENDING_PROVIDER, OrderState.EXECUTING)
_CAN_DESTROY = (OrderState.PENDING_CONSUMER, OrderState.PENDING_PROVIDER)


def require_state(order: Order, *allowed: OrderState) -> None:
    if order.state not in allowed:
        raise wrong_state(state.value for state in allowed)


def approve_by_consumer(store: Store, order: Order, user: User) -> None:
    require_state(order, OrderState.PENDING_CONSUMER)
    order.consumer_reviewed_by_uuid = user.uuid
    order.consumer_reviewed_at = store.clock.now()
    _enter(store, order, placing.approved_state(store, order))


def reject_by_consumer(store: Store, order: Order, user: User) -> None:
    require_state(order, OrderState.PENDING_CONSUMER)
    order.consumer_reviewed_by_uuid = user.uuid
    order.consumer_reviewed_at = store.clock.now()
    _refuse(store, order)


def approve_by_provider(store: Store, order: Order, user: User) -> None:
    """Execute the order, or park it until its start date; the processor runs later in the background."""
    require_state(order, OrderState.PENDING_PROVIDER)
    _note_provider(store, order, user)
    start = order.start_date
    if store.age.is_modern and start is not None and start > store.clock.today():
        _enter(store, order, OrderState.PENDING_START_DATE)
        return
    _enter(store, order, OrderState.EXECUTING)
    processor.schedule(store, order)


def reject_by_provider(store: Store, order: Order, user: User, *, comment: str) -> None:
    require_state(order, OrderState.PENDING_PROVIDER)
    _note_provider(store, order, user)
    order.provider_rejection_comment = comment
    _refuse(store, order)


def set_executing(store: Store, order: Order) -> None:
    """Set the order executing; neither the processor nor the resource changes."""
    require_state(order, *_CAN_EXECUTE)
    _enter(store, order, OrderState.EXECUTING)


def set_done(store: Store, order: Order) -> None:
    require_state(order, OrderState.EXECUTING)
    finish(store, order)


def finish(store: Store, order: Order) -> None:
    resource = store.resources[order.resource_uuid]
    order.completed_at = store.clock.now()
    _enter(store, order, OrderState.DONE)
    if order.type is OrderType.UPDATE:
        _apply_update(resource, order)
    is_gone = order.type is OrderType.TERMINATE
    resource.state = ResourceState.TERMINATED if is_gone else ResourceState.OK
    resource.modified = store.clock.now()
    if order.type in (OrderType.CREATE, OrderType.RESTORE):
        offering_user_rules.ensure_for_project(store, resource)


def set_erred(store: Store, order: Order, *, message: str, traceback: str) -> None:
    """Flip the resource whatever the order's state; the order moves only if it is the one executing."""
    order.error_message = message
    order.error_traceback = traceback
    order.modified = store.clock.now()
    executing = [
        other
        for other in store.orders.where("resource", order.resource_uuid)
        if other.state is OrderState.EXECUTING and other.type is order.type
    ]
    if len(executing) == 1:
        _enter(store, executing[0], OrderState.ERRED)
    resource = store.resources[order.resource_uuid]
    resource.state = ResourceState.OK if order.type is OrderType.TERMINATE else ResourceState.ERRED
    resource.modified = store.clock.now()


def cancel(store: Store, order: Order) -> None:
    """Refused for every order of a SLURM offering: state first, then type, as the real server does."""
    require_state(order, *_CAN_CANCEL)
    offering = store.offering_of(order)
    if offering.type == "Marketplace.Slurm":
        raise detail(405, "Orders of this type of offering cannot be canceled.")
    _enter(store, order, OrderState.CANCELED)


def destroy(store: Store, order: Order) -> None:
    require_state(order, *_CAN_DESTROY)
    store.orders.remove(order)


def _apply_update(resource: Resource, order: Order) -> None:
    if "new_options" in order.attributes:
        resource.options = {**(resource.options or {}), **order.attributes["new_options"]}
    elif order.old_plan_uuid is not None:
        resource.plan_uuid = order.plan_uuid
    elif order.attributes.get("action") == "renew":
        resource.end_date = date.fromisoformat(order.attributes["new_end_date"])
    else:
        resource.limits = dict(order.limits)


def _refuse(store: Store, order: Order) -> None:
    _enter(store, order, OrderState.REJECTED)
    resource = store.resources[order.resource_uuid]
    is_new = order.type in (OrderType.CREATE, OrderType.RESTORE)
    resource.state = ResourceState.TERMINATED if is_new else ResourceState.OK
    resource.modified = store.clock.now()


def _note_provider(store: Store, order: Order, user: User) -> None:
    order.provider_reviewed_by_uuid = user.uuid
    order.provider_reviewed_at = store.clock.now()


def _enter(store: Store, order: Order, state: OrderState) -> None:
    order.state = state
    order.modified = store.clock.now()
