# SPDX-License-Identifier: MIT
"""Orders as JSON, for each age, and the part that orders and resources share.

In 2024 a field reached through an empty relation is absent; later servers print null.
"""

from __future__ import annotations

from simulator.render.view import View, drop
from simulator.rules import costs
from simulator.world.clock import wire_date, wire_time
from simulator.world.records import JsonObject, Offering, Order, Plan, Resource

_PLAN_FIELDS = ("plan_unit", "plan_name", "plan_uuid", "plan_description")


def order_body(view: View, order: Order) -> JsonObject:
    store = view.store
    offering = store.offering_of(order)
    body = {
        **offering_part(view, offering),
        **plan_part(view, offering, store.plan_of(order)),
        **_own_fields(view, order),
        **_message_fields(view, order),
        **_review_fields(view, order),
        **_owner_fields(view, order),
        **_price_fields(view, order),
        "can_terminate": False,
        "termination_comment": order.termination_comment,
        "backend_id": order.backend_id,
        "issue": None,
    }
    if view.age.is_modern:
        return body
    return drop(body, [name for name in _ABSENT_WHEN_EMPTY if body[name] is None])


def created_order_body(view: View, order: Order) -> JsonObject:
    """Return the answer to the POST that made the order; in 2024 another serializer with fewer fields."""
    body = order_body(view, order)
    if view.age.is_modern:
        return body
    author, reviewer = view.user(order.created_by_uuid), view.user(order.consumer_reviewed_by_uuid)
    body = drop(body, _NOT_IN_CREATED) | {
        "url": view.link("marketplace-orders", order.uuid),
        "created_by": view.link("users", order.created_by_uuid),
        "created_by_username": author.username if author else None,
        "consumer_reviewed_by": view.link("users", order.consumer_reviewed_by_uuid),
        "consumer_reviewed_at": wire_time(order.consumer_reviewed_at),
        "project": view.link("projects", order.project_uuid),
    }
    if reviewer is not None:
        body |= {
            "consumer_reviewed_by_username": reviewer.username,
            "consumer_reviewed_by_full_name": reviewer.full_name,
        }
    return body


_NOT_IN_CREATED = (
    "provider_reviewed_at",
    "created_by_civil_number",
    "customer_slug",
    "project_slug",
    "new_plan_name",
    "new_plan_uuid",
    "old_cost_estimate",
    "new_cost_estimate",
    "can_terminate",
    "fixed_price",
    "activation_price",
    "termination_comment",
    "backend_id",
    "issue",
)


def offering_part(view: View, offering: Offering) -> JsonObject:
    customer = view.store.customers[offering.customer_uuid]
    body: JsonObject = {
        "offering": view.link("marketplace-public-offerings", offering.uuid),
        "offering_name": offering.name,
        "offering_uuid": offering.uuid,
        "offering_description": "",
        "offering_image": None,
        "offering_thumbnail": None,
        "offering_type": offering.type,
        "offering_shared": True,
        "offering_billable": True,
        "offering_plugin_options": dict(offering.plugin_options),
        "provider_name": customer.name,
        "provider_uuid": customer.uuid,
        "category_title": offering.category_title,
        "category_uuid": offering.category_uuid,
        "category_icon": None,
    }
    newer = {"provider_slug": customer.slug}
    return body | (newer if view.age.is_modern else {"offering_terms_of_service": ""})


def plan_part(view: View, offering: Offering, plan: Plan | None) -> JsonObject:
    base = view.link("marketplace-public-offerings", offering.uuid)
    if plan is None:
        return {"plan": None} | dict.fromkeys(_PLAN_FIELDS)
    return {
        "plan": f"{base}plans/{plan.uuid}/",
        "plan_unit": plan.unit,
        "plan_name": plan.name,
        "plan_uuid": plan.uuid,
        "plan_description": plan.description,
    }


def scope_part(resource: Resource) -> JsonObject:
    """Return the object behind the resource: an allocation in 2024, nothing later."""
    allocation = resource.allocation
    return {
        "resource_uuid": allocation.uuid if allocation else None,
        "resource_type": "SLURM.Allocation" if allocation else None,
    }


def _own_fields(view: View, order: Order) -> JsonObject:
    resource = view.store.resources[order.resource_uuid]
    return {
        "attributes": dict(order.attributes),
        "limits": dict(order.limits),
        "uuid": order.uuid,
        "created": wire_time(order.created),
        "modified": wire_time(order.modified),
        "type": order.type.value,
        **scope_part(resource),
        "resource_name": resource.name,
        "marketplace_resource_uuid": resource.uuid,
        "cost": costs.wire_cost(order.cost),
        "state": order.state.value,
    }


def _message_fields(view: View, order: Order) -> JsonObject:
    body: JsonObject = {"output": "", "error_message": order.error_message, "callback_url": None}
    if not view.age.is_modern:
        return body
    return body | {
        "error_traceback": order.error_traceback,
        "completed_at": wire_time(order.completed_at),
        "request_comment": order.request_comment,
        "attachment": None,
        "start_date": wire_date(order.start_date),
        "slug": order.slug,
        "url": view.link("marketplace-orders", order.uuid),
        "order_subtype": _subtype(order),
        "provider_message": "",
        "provider_message_url": "",
        "provider_message_attachment": None,
        "consumer_message": "",
        "consumer_message_attachment": None,
        "consumer_rejection_comment": "",
        "provider_rejection_comment": order.provider_rejection_comment,
    }


def _subtype(order: Order) -> str | None:
    if "old_limits" in order.attributes:
        return "limits"
    if order.old_plan_uuid is not None:
        return "plan"
    return "options" if "new_options" in order.attributes else None


def _review_fields(view: View, order: Order) -> JsonObject:
    body: JsonObject = {}
    for side, uuid, at in (
        ("consumer", order.consumer_reviewed_by_uuid, order.consumer_reviewed_at),
        ("provider", order.provider_reviewed_by_uuid, order.provider_reviewed_at),
    ):
        user = view.user(uuid)
        body[f"{side}_reviewed_by"] = user.username if user else None
        body[f"{side}_reviewed_by_full_name"] = user.full_name if user else None
        body[f"{side}_reviewed_at"] = wire_time(at)
        if view.age.is_modern:
            body[f"{side}_reviewed_by_username"] = user.username if user else None
    return body


def _owner_fields(view: View, order: Order) -> JsonObject:
    store = view.store
    customer, project = store.customer_of(order), store.projects[order.project_uuid]
    author = store.users[order.created_by_uuid]
    body: JsonObject = {
        "created_by_full_name": author.full_name,
        "created_by_civil_number": None,
        "customer_name": customer.name,
        "customer_uuid": customer.uuid,
        "customer_slug": customer.slug,
        "project_name": project.name,
        "project_uuid": project.uuid,
        "project_description": project.description,
        "project_slug": project.slug,
    }
    newer = {
        "created_by_username": author.username,
        "created_by_email": author.email,
        "created_by_organization": None,
        "created_by_organization_registry_code": None,
    }
    return body | newer if view.age.is_modern else body


def _price_fields(view: View, order: Order) -> JsonObject:
    store = view.store
    resource, offering = store.resources[order.resource_uuid], store.offering_of(order)
    old_plan, new_plan = offering.plan(order.old_plan_uuid), store.plan_of(order)
    new_cost: str | float | None = costs.wire_cost(order.cost)
    if not view.age.is_modern and order.cost is not None:
        new_cost = float(order.cost)
    return {
        "old_plan_name": old_plan.name if old_plan else None,
        "old_plan_uuid": old_plan.uuid if old_plan else None,
        "new_plan_name": new_plan.name if new_plan else None,
        "new_plan_uuid": new_plan.uuid if new_plan else None,
        "old_cost_estimate": float(costs.estimate(offering, store.plan_of(resource), resource.limits)),
        "new_cost_estimate": new_cost,
        "fixed_price": 0,
        "activation_price": 0,
    }


_ABSENT_WHEN_EMPTY = (
    *_PLAN_FIELDS,
    "new_plan_name",
    "new_plan_uuid",
    "old_plan_name",
    "old_plan_uuid",
    "consumer_reviewed_by",
    "consumer_reviewed_by_full_name",
    "provider_reviewed_by",
    "provider_reviewed_by_full_name",
)
