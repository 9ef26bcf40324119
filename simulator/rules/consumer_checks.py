# SPDX-License-Identifier: MIT
"""Checks of the server before a consumer's request becomes an order: limits, state, nothing else pending.

The control API omits these checks on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from simulator.rules.errors import ApiError, bad_combination, bad_field, bad_request, wrong_state
from simulator.rules.lookup import require_fields
from simulator.rules.placing import OrderRequest
from simulator.server.routes import Call
from simulator.world.identifiers import uuid_of_url
from simulator.world.records import JsonObject, Offering, OrderType, Project, Resource, ResourceState
from simulator.world.store import Store


@dataclass(frozen=True, kw_only=True)
class NewOrder:
    offering: Offering
    project: Project
    request: OrderRequest


def new_order(call: Call) -> NewOrder:
    body = require_fields(call, "offering", "project")
    offering = call.store.offerings.get(uuid_of_url(body["offering"]))
    project = call.store.projects.get(uuid_of_url(body["project"]))
    if offering is None:
        raise bad_field("offering", "Invalid hyperlink - Object does not exist.")
    roles = call.store.active_roles(call.user.uuid)
    if project is None or not (
        call.user.is_staff
        or any(grant.scope_uuid in (project.uuid, project.customer_uuid) for grant in roles)
    ):
        raise bad_field("project", "Invalid hyperlink - Object does not exist.")
    limits = body.get("limits") or {}
    unknown = _unknown_types(offering, limits)
    if unknown:
        raise bad_field("limits", f"Unknown limit types: {', '.join(unknown)}")
    for problem in _out_of_range(offering, limits):
        raise bad_combination(problem)
    plan = offering.plan(uuid_of_url(body.get("plan")))
    request = OrderRequest(
        type=OrderType.CREATE,
        limits=limits,
        attributes=body.get("attributes") or {},
        plan_uuid=plan.uuid if plan else None,
        start_date=_start_date(call, body),
        request_comment=body.get("request_comment"),
    )
    return NewOrder(offering=offering, project=project, request=request)


def new_limits(store: Store, resource: Resource, limits: JsonObject) -> None:
    """Refuse a limit change: state first, then a pending order, then the values."""
    require_resource_state(resource, ResourceState.OK)
    require_no_pending_order(store, resource)
    offering = store.offering_of(resource)
    unknown = _unknown_types(offering, limits)
    if unknown:
        # One text, not a list of texts: the real server differs from order creation here.
        raise ApiError(400, {"limits": f"Unknown limit types: {', '.join(unknown)}"})
    for problem in _out_of_range(offering, limits):
        raise bad_request(problem)
    if limits == resource.limits:
        raise bad_request("The limits are the same as before.")


def require_resource_state(resource: Resource, *allowed: ResourceState) -> None:
    if resource.state not in allowed:
        raise wrong_state(state.value for state in allowed)


def require_no_pending_order(store: Store, resource: Resource) -> None:
    if store.pending_order(resource.uuid) is not None:
        raise bad_request("The resource has an order that is not finished.")


def _unknown_types(offering: Offering, limits: JsonObject) -> list[str]:
    limited = {c.type for c in offering.components if c.billing_type == "limit"}
    return sorted(set(limits) - limited)


def _out_of_range(offering: Offering, limits: JsonObject) -> Iterator[str]:
    for component in offering.components:
        value = limits.get(component.type)
        if value is None:
            continue
        if component.max_value is not None and value > component.max_value:
            yield f"The limit {value} is more than the maximum {component.max_value}."
        if component.min_value is not None and value < component.min_value:
            yield f"The limit {value} is less than the minimum {component.min_value}."


def _start_date(call: Call, body: JsonObject) -> date | None:
    text = body.get("start_date")
    if not call.age.is_modern or text is None:
        return None
    try:
        return date.fromisoformat(text)
    except (TypeError, ValueError):
        raise bad_field("start_date", "Date has wrong format.") from None
