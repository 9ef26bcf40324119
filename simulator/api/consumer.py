# SPDX-License-Identifier: MIT
"""marketplace-resources: the consumer's view, and the requests that become orders."""

from __future__ import annotations

from simulator.api.resources import resource_filters
from simulator.render.resources import resource_body
from simulator.render.view import pick
from simulator.rules import access, consumer_checks, lookup, placing
from simulator.rules.errors import bad_field
from simulator.rules.lookup import view_of
from simulator.rules.placing import OrderRequest
from simulator.server.routes import Call, Reply, Routes
from simulator.world.ages import Age
from simulator.world.identifiers import uuid_of_url
from simulator.world.records import OrderType, Resource, ResourceState

routes = Routes()


@routes.on("GET", "marketplace-resources/")
def list_resources(call: Call) -> Reply:
    mine = [r for r in call.store.resources if access.consumes(call.store, call.user, r)]
    rows = resource_filters(call.store).apply(mine, call.query)
    return lookup.page_of(call, rows, lambda r: resource_body(view_of(call), r, with_orders=False))


@routes.on("GET", "marketplace-resources/{uuid}/")
def get_resource(call: Call) -> Reply:
    return Reply(body=pick(resource_body(view_of(call), lookup.consumer_resource(call)), call.query))


@routes.on("POST", "marketplace-resources/{uuid}/update_limits/")
def update_limits(call: Call) -> Reply:
    resource = _consumed(call, "RESOURCE.SET_LIMITS")
    consumer_checks.require_resource_state(resource, ResourceState.OK)
    limits = lookup.require_fields(call, "limits")["limits"]
    consumer_checks.new_limits(call.store, resource, limits)
    return _ordered(call, resource, placing.limit_change(resource, limits))


@routes.on("POST", "marketplace-resources/{uuid}/switch_plan/")
def switch_plan(call: Call) -> Reply:
    resource = _consumed(call, "RESOURCE.SET_PLAN")
    consumer_checks.require_resource_state(resource, ResourceState.OK)
    consumer_checks.require_no_pending_order(call.store, resource)
    wanted = lookup.require_fields(call, "plan")["plan"]
    plan = call.store.offering_of(resource).plan(uuid_of_url(wanted))
    if plan is None or plan.uuid == resource.plan_uuid:
        raise bad_field("plan", "Not another plan of the resource's offering.")
    return _ordered(call, resource, placing.plan_switch(resource, plan.uuid))


@routes.on("POST", "marketplace-resources/{uuid}/terminate/")
def terminate(call: Call) -> Reply:
    return _terminate(call, _consumed(call, "RESOURCE.TERMINATE"))


@routes.on("POST", "marketplace-resources/{uuid}/restore/", since=Age.V8_0)
def restore(call: Call) -> Reply:
    resource = _consumed(call, "RESOURCE.TERMINATE")
    consumer_checks.require_resource_state(resource, ResourceState.TERMINATED)
    consumer_checks.require_no_pending_order(call.store, resource)
    return _ordered(call, resource, placing.restoration(resource))


@routes.on("POST", "marketplace-provider-resources/{uuid}/terminate/")
def terminate_by_provider(call: Call) -> Reply:
    resource = lookup.provider_resource(call)
    scopes = access.customer_scope(call.store.offering_of(resource))
    access.require(call.store, call.user, "RESOURCE.TERMINATE", scopes)
    return _terminate(call, resource)


def _terminate(call: Call, resource: Resource) -> Reply:
    consumer_checks.require_resource_state(resource, ResourceState.OK, ResourceState.ERRED)
    consumer_checks.require_no_pending_order(call.store, resource)
    attributes = lookup.require_object(call).get("attributes") or {}
    return _ordered(call, resource, OrderRequest(type=OrderType.TERMINATE, attributes=attributes))


def _consumed(call: Call, permission: str) -> Resource:
    resource = lookup.consumer_resource(call)
    scopes = access.project_scopes(call.store.projects[resource.project_uuid])
    access.require(call.store, call.user, permission, scopes)
    return resource


def _ordered(call: Call, resource: Resource, request: OrderRequest) -> Reply:
    """Place the order; it waits for a consumer's approval unless the caller can give it."""
    store = call.store
    scopes = access.project_scopes(store.projects[resource.project_uuid])
    scopes += access.customer_scope(store.offering_of(resource))
    is_approved = access.may(store, call.user, "ORDER.APPROVE", scopes)
    order = placing.place(store, resource, request, author=call.user, is_approved=is_approved)
    return Reply(body={"order_uuid": order.uuid})
