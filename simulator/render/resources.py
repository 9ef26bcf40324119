# SPDX-License-Identifier: MIT
"""Resources and their teams as JSON. A list omits the orders that a detail carries."""

from __future__ import annotations

from decimal import Decimal

from simulator.render.offerings import component_body
from simulator.render.orders import offering_part, order_body, plan_part, scope_part
from simulator.render.view import View
from simulator.world.ages import Age
from simulator.world.clock import wire_date, wire_time
from simulator.world.records import Grant, JsonObject, Resource, ResourceState

_TERMINABLE = (ResourceState.OK, ResourceState.ERRED)


def resource_body(view: View, resource: Resource, *, with_orders: bool = True) -> JsonObject:
    offering = view.store.offering_of(resource)
    body = {
        **offering_part(view, offering),
        **plan_part(view, offering, view.store.plan_of(resource)),
        **_own_fields(view, resource),
        **_owner_fields(view, resource),
        **_usage_fields(view, resource),
        **_flag_fields(view, resource),
    }
    if view.age.is_modern:
        body |= _modern_fields(view, resource)
    if not with_orders:
        return body
    orders = view.store.orders.where("resource", resource.uuid)
    pending = view.store.pending_order(resource.uuid)
    return body | {
        "order_in_progress": order_body(view, pending) if pending else None,
        "creation_order": next((order_body(view, o) for o in orders if o.type.value == "Create"), None),
    }


def team_body(view: View, resource: Resource) -> list[JsonObject]:
    """Return every user of the project once, by their first grant."""
    first_grants: dict[str, Grant] = {}
    for grant in view.store.active_grants(resource.project_uuid):
        first_grants.setdefault(grant.user_uuid, grant)
    return [_member(view, resource, grant) for grant in first_grants.values()]


def role_name(view: View, role: str) -> str:
    """`manager` in 2024, `PROJECT.MANAGER` later."""
    return role if view.age.is_modern else role.rpartition(".")[2].lower()


def _member(view: View, resource: Resource, grant: Grant) -> JsonObject:
    user = view.store.users[grant.user_uuid]
    account = view.store.offering_user(resource.offering_uuid, user.uuid)
    body: JsonObject = {
        "url": view.link("users", user.uuid),
        "uuid": user.uuid,
        "username": user.username,
        "full_name": user.full_name,
        "email": user.email,
        "role": role_name(view, grant.role),
        "expiration_time": wire_time(grant.expiration_time),
        "offering_user_username": account.username if account else None,
    }
    if view.age.is_modern:
        body["offering_user_state"] = account.state.value if account else None
    return body


def _own_fields(view: View, resource: Resource) -> JsonObject:
    collection = "marketplace-provider-resources" if view.age.is_modern else "marketplace-resources"
    return {
        "attributes": dict(resource.attributes),
        "limits": dict(resource.limits),
        "uuid": resource.uuid,
        "created": wire_time(resource.created),
        "modified": wire_time(resource.modified),
        "url": view.link(collection, resource.uuid),
        "scope": view.link("slurm-allocations", resource.allocation.uuid) if resource.allocation else None,
        "description": resource.description,
        "state": resource.state.value,
        **scope_part(resource),
        "backend_id": resource.backend_id,
        "effective_id": resource.effective_id,
        "backend_metadata": dict(resource.backend_metadata),
        "name": resource.name,
        "slug": resource.slug,
        "report": resource.report,
        "end_date": wire_date(resource.end_date),
        **({"spending_limits": dict(resource.spending_limits)} if resource.spending_limits else {}),
        "end_date_requested_by": None,
        "username": None,
        "endpoints": list(resource.endpoints),
        "error_message": resource.error_message,
        "error_traceback": resource.error_traceback,
        "options": resource.options,
    }


def _owner_fields(view: View, resource: Resource) -> JsonObject:
    customer, project = view.store.customer_of(resource), view.store.projects[resource.project_uuid]
    return {
        "project": view.link("projects", project.uuid),
        "project_uuid": project.uuid,
        "project_name": project.name,
        "project_description": project.description,
        "project_end_date": wire_date(project.end_date),
        "project_end_date_requested_by": None,
        "customer_uuid": customer.uuid,
        "customer_name": customer.name,
    }


def _usage_fields(view: View, resource: Resource) -> JsonObject:
    components = view.store.offering_of(resource).components
    limited = [c.type for c in components if c.billing_type == "limit"]
    if view.age.is_modern:
        month = view.store.clock.month_of(view.store.clock.now())
        rows = view.store.usages.where("resource", resource.uuid)
        current: JsonObject = {
            row.component_type: _number(row.usage) for row in rows if row.billing_period == month
        }
        limit_usage: JsonObject = {name: current.get(name, 0) for name in limited}
    else:
        current, limit_usage = dict(resource.reported_usages), dict.fromkeys(limited)
    return {
        "is_usage_based": any(c.billing_type == "usage" for c in components),
        "is_limit_based": bool(limited),
        "current_usages": current,
        "limit_usage": limit_usage,
    }


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _flag_fields(view: View, resource: Resource) -> JsonObject:
    is_busy = view.store.pending_order(resource.uuid) is not None
    body: JsonObject = {
        "can_terminate": resource.state in _TERMINABLE and not is_busy,
        "downscaled": resource.downscaled,
        "restrict_member_access": resource.restrict_member_access,
        "paused": resource.paused,
        "available_actions": [],
    }
    if not view.age.is_modern:
        body["offering_customer_uuid"] = view.store.offering_of(resource).customer_uuid
    return body


def _modern_fields(view: View, resource: Resource) -> JsonObject:
    offering, customer = view.store.offering_of(resource), view.store.customer_of(resource)
    return {
        "offering_slug": offering.slug,
        "offering_backend_id": offering.backend_id,
        "last_sync": wire_time(resource.last_sync or resource.created),
        "project_slug": view.store.projects[resource.project_uuid].slug,
        "customer_slug": customer.slug,
        "user_requires_reconsent": False,
        "renewal_date": None,
        "offering_state": offering.state,
        "offering_components": [component_body(view, c) for c in offering.components],
        **(
            {"has_api_keys": any(k.resource_uuid == resource.uuid for k in view.store.api_keys)}
            if view.age.at_least(Age.V8_1)
            else {}
        ),
    }
