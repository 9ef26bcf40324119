# SPDX-License-Identifier: MIT
"""Background work of the server: the processor after an approval, and the daily start and end dates.

The order rules schedule it; `catch_up` runs what has fallen due before the store is read.
"""

from __future__ import annotations

from simulator.rules import allocations, placing
from simulator.world.records import Order, OrderState, OrderType, Resource, ResourceState
from simulator.world.store import Store

_WAITING = (OrderState.PENDING_PROJECT, OrderState.PENDING_START_DATE)
_RUNNING = (ResourceState.OK, ResourceState.ERRED)


def schedule(store: Store, order: Order) -> None:
    uuid = order.uuid
    store.background.schedule(store.settings.processor_delay_s, lambda: _process(store, uuid))


def catch_up(store: Store) -> None:
    """Bring the store up to date with the clock. Dates are looked at once a day, and again after any change."""
    today = store.clock.today()
    if store.dates_checked_on != today:
        _start_dated_orders(store)
        _terminate_ended_resources(store)
        store.dates_checked_on = today
    run_due(store)


def run_due(store: Store) -> None:
    """Run the jobs whose time has come."""
    if store.background.run_due():
        store.dates_checked_on = None


def _process(store: Store, order_uuid: str) -> None:
    order = store.orders.get(order_uuid)
    if order is None:
        return
    resource = store.resources[order.resource_uuid]
    if not store.age.is_modern and not _process_allocation(store, order, resource):
        return
    if store.settings.loses_backend_id and not resource.has_lost_backend_id:
        resource.has_lost_backend_id = True
        resource.backend_id = ""
    if order.state is OrderState.EXECUTING:
        if order.type is OrderType.UPDATE:
            resource.state = ResourceState.UPDATING
        elif order.type is OrderType.TERMINATE:
            resource.state = ResourceState.TERMINATING
    resource.modified = store.clock.now()


def _process_allocation(store: Store, order: Order, resource: Resource) -> bool:
    """2024: let the order pass through the allocation; False when it failed there."""
    if order.type is OrderType.CREATE:
        allocations.make(store, resource)
        return True
    allocation = resource.allocation
    if allocation is None or order.type is OrderType.TERMINATE:
        return True
    problem = allocations.schedule_update(resource, allocation)
    if problem is not None:
        order.state = OrderState.ERRED
        order.error_message = problem
        order.modified = store.clock.now()
    return problem is None


def _start_dated_orders(store: Store) -> None:
    today = store.clock.today()
    states = [order.state for order in store.orders]
    if not any(state in states for state in _WAITING):
        return
    for order in [order for order in store.orders if order.state in _WAITING]:
        if order.state is OrderState.PENDING_PROJECT:
            order.state = placing.approved_state(store, order)
        is_waiting = order.state is OrderState.PENDING_START_DATE
        if is_waiting and order.start_date is not None and order.start_date <= today:
            order.state = OrderState.EXECUTING
            order.modified = store.clock.now()
            schedule(store, order)


def _terminate_ended_resources(store: Store) -> None:
    today = store.clock.today()
    ended = [r for r in store.resources if r.end_date is not None and r.end_date <= today]
    for resource in ended:
        if resource.state in _RUNNING and store.pending_order(resource.uuid) is None:
            staff = next(user for user in store.users if user.is_staff)
            placing.place(store, resource, placing.OrderRequest(type=OrderType.TERMINATE), author=staff)
