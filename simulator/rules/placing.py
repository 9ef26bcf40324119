# SPDX-License-Identifier: MIT
"""Make the resource row of a Create order and the order row of every kind.

Checks nothing, so that the control API can place what a real consumer could not (see `consumer_checks`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from simulator.rules import costs
from simulator.world.records import (
    JsonObject,
    Offering,
    Order,
    OrderState,
    OrderType,
    Project,
    Resource,
    ResourceState,
    User,
)
from simulator.world.store import Store


@dataclass(frozen=True, kw_only=True)
class OrderRequest:
    """Content of a new order."""

    type: OrderType
    limits: JsonObject = field(default_factory=dict)
    attributes: JsonObject = field(default_factory=dict)
    # The new plan of a plan switch or of a new resource.
    plan_uuid: str | None = None
    old_plan_uuid: str | None = None
    start_date: date | None = None
    request_comment: str | None = None
    termination_comment: str | None = None


def new_resource(
    store: Store, offering: Offering, project: Project, *, request: OrderRequest, slug: str | None = None
) -> Resource:
    now = store.clock.now()
    name = str(request.attributes.get("name", ""))
    return store.resources.add(
        Resource(
            uuid=store.uuids.new(),
            name=name,
            slug=store.slugs.make("resource", name) if slug is None else slug,
            offering_uuid=offering.uuid,
            project_uuid=project.uuid,
            plan_uuid=request.plan_uuid,
            created=now,
            modified=now,
            limits=dict(request.limits),
            attributes=dict(request.attributes),
            description=str(request.attributes.get("description", "")),
            options={} if store.age.is_modern else None,
            report=[] if store.age.is_modern else None,
        )
    )


def place(
    store: Store, resource: Resource, request: OrderRequest, *, author: User, is_approved: bool = True
) -> Order:
    """Add the order; an approved one waits for the provider, any other for a consumer's approval."""
    now = store.clock.now()
    offering = store.offering_of(resource)
    order = Order(
        uuid=store.uuids.new(),
        slug=store.slugs.make("order", resource.name),
        type=request.type,
        state=approved_state(store, resource) if is_approved else OrderState.PENDING_CONSUMER,
        resource_uuid=resource.uuid,
        offering_uuid=resource.offering_uuid,
        project_uuid=resource.project_uuid,
        plan_uuid=None if request.type is OrderType.TERMINATE else request.plan_uuid or resource.plan_uuid,
        old_plan_uuid=request.old_plan_uuid,
        created=now,
        modified=now,
        created_by_uuid=author.uuid,
        limits=dict(request.limits),
        attributes=dict(request.attributes),
        start_date=request.start_date,
        request_comment=request.request_comment,
        termination_comment=request.termination_comment,
    )
    if request.type is not OrderType.TERMINATE:
        limits = request.limits or (resource.limits if request.type is OrderType.UPDATE else {})
        order.cost = costs.estimate(offering, offering.plan(order.plan_uuid), limits)
    if is_approved:
        order.consumer_reviewed_by_uuid = author.uuid
        order.consumer_reviewed_at = now
    if request.type is OrderType.RESTORE:
        resource.state = ResourceState.CREATING
    return store.orders.add(order)


def approved_state(store: Store, row: Resource | Order) -> OrderState:
    """Return the state of an order that its consumer has approved: it waits for a project that starts later."""
    start = store.projects[row.project_uuid].start_date
    is_early = start is not None and start > store.clock.today()
    return OrderState.PENDING_PROJECT if is_early else OrderState.PENDING_PROVIDER


def limit_change(resource: Resource, limits: JsonObject) -> OrderRequest:
    return OrderRequest(
        type=OrderType.UPDATE, limits=limits, attributes={"old_limits": dict(resource.limits)}
    )


def plan_switch(resource: Resource, plan_uuid: str) -> OrderRequest:
    return OrderRequest(type=OrderType.UPDATE, plan_uuid=plan_uuid, old_plan_uuid=resource.plan_uuid)


def option_change(resource: Resource, options: JsonObject) -> OrderRequest:
    return OrderRequest(
        type=OrderType.UPDATE,
        attributes={"old_options": dict(resource.options or {}), "new_options": options},
    )


def restoration(resource: Resource) -> OrderRequest:
    return OrderRequest(
        type=OrderType.RESTORE, limits=dict(resource.limits), attributes=dict(resource.attributes)
    )
