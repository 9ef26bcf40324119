# SPDX-License-Identifier: MIT
"""Offerings, their components and plans: what the provider reads, and the components it may edit."""

from __future__ import annotations

import re
from dataclasses import fields

from simulator.render.offerings import offering_body, plan_detail_body, public_offering_body, public_plan_body
from simulator.render.people import EXPOSABLE_FIELDS, account_body
from simulator.render.view import pick
from simulator.rules import access, lookup
from simulator.rules.errors import ApiError, bad_field, bad_request, unknown_object
from simulator.rules.lookup import page_of, view_of
from simulator.server.routes import Call, Reply, Routes
from simulator.world.ages import Age
from simulator.world.clock import wire_time
from simulator.world.identifiers import as_uuid
from simulator.world.records import Component, JsonObject, Offering, Resource

routes = Routes()

_LIMIT_PERIODS = (None, "", "month", "quarterly", "annual", "total")
_BILLING_TYPES = ("fixed", "usage", "limit", "one", "few")
COMPONENT_TYPE = re.compile(r"[A-Za-z0-9_/:-]{1,50}")
_EDITABLE = frozenset(f.name for f in fields(Component)) - {"uuid", "is_builtin"}


@routes.on("GET", "marketplace-provider-offerings/")
def list_offerings(call: Call) -> Reply:
    rows = [row for row in call.store.offerings if access.provides(call.store, call.user, row)]
    return page_of(call, rows, lambda row: offering_body(view_of(call), row))


@routes.on("GET", "marketplace-provider-offerings/{uuid}/")
def get_offering(call: Call) -> Reply:
    return Reply(body=pick(offering_body(view_of(call), lookup.provider_offering(call)), call.query))


@routes.on("GET", "marketplace-public-offerings/{uuid}/")
def get_public_offering(call: Call) -> Reply:
    offering = lookup.visible_row(call, call.store.offerings, "Offering", lambda o: o.state != "Draft")
    return Reply(body=pick(public_offering_body(view_of(call), offering), call.query))


@routes.on("GET", "marketplace-public-offerings/{uuid}/plans/{plan}/")
def get_public_plan(call: Call) -> Reply:
    offering = lookup.visible_row(call, call.store.offerings, "Offering", lambda o: o.state != "Draft")
    plan = offering.plan(as_uuid(call.arguments["plan"]))
    if plan is None:
        raise unknown_object("Plan")
    return Reply(body=public_plan_body(view_of(call), offering, plan))


@routes.on("GET", "marketplace-plans/{uuid}/")
def get_plan(call: Call) -> Reply:
    for offering in call.store.offerings:
        plan = offering.plan(call.uuid)
        if plan is not None and access.provides(call.store, call.user, offering):
            return Reply(body=pick(plan_detail_body(view_of(call), offering, plan), call.query))
    raise unknown_object("Plan")


@routes.on("GET", "marketplace-provider-offerings/{uuid}/user-attribute-config/", since=Age.V8_0)
def user_attribute_config(call: Call) -> Reply:
    offering = lookup.provider_offering(call)
    exposures = {f"expose_{name}": name in offering.exposed_fields for name in EXPOSABLE_FIELDS}
    return Reply(
        body={
            "uuid": offering.uuid,
            "created": wire_time(offering.created),
            "modified": wire_time(offering.created),
            "offering_uuid": offering.uuid,
            "offering_name": offering.name,
            **exposures,
            "exposed_fields": list(offering.exposed_fields),
            "is_default": offering.exposed_fields == ["username", "full_name", "email"],
        }
    )


@routes.on("POST", "marketplace-provider-offerings/{uuid}/check_unique_backend_id/", since=Age.V8_0)
def check_unique_backend_id(call: Call) -> Reply:
    offering = lookup.provider_offering(call)
    backend_id = lookup.require_fields(call, "backend_id")["backend_id"]
    owners = [offering]
    if call.field("check_all_offerings"):
        owners = call.store.offerings.where("customer", offering.customer_uuid)
    taken = {r.backend_id for o in owners for r in _resources(call, o)}
    return Reply(body={"is_unique": backend_id not in taken, "is_valid_format": None, "errors": []})


@routes.on("GET", "marketplace-provider-offerings/{uuid}/list_project_service_accounts/", since=Age.V8_0)
def list_project_service_accounts(call: Call) -> Reply:
    return _list_accounts(call, "project")


@routes.on("GET", "marketplace-provider-offerings/{uuid}/list_course_accounts/", since=Age.V8_0)
def list_course_accounts(call: Call) -> Reply:
    return _list_accounts(call, "course")


def _list_accounts(call: Call, kind: str) -> Reply:
    """Return the accounts of the projects that have a resource at this offering."""
    offering = lookup.provider_offering(call)
    projects = {resource.project_uuid for resource in _resources(call, offering)}
    rows = [a for a in call.store.accounts.where("kind", kind) if a.project_uuid in projects]
    return lookup.page_of(call, rows, lambda a: account_body(view_of(call), a))


@routes.on("POST", "marketplace-provider-offerings/{uuid}/create_offering_component/")
def create_offering_component(call: Call) -> Reply:
    offering = _editable_offering(call)
    values = _component_values(lookup.require_fields(call, "type", "name", "billing_type"))
    if offering.component(values["type"]) is not None:
        raise bad_field("type", "The offering has a component of this type.")
    offering.components.append(Component(uuid=call.store.uuids.new(), **values))
    return Reply(status=201)


@routes.on("POST", "marketplace-provider-offerings/{uuid}/update_offering_component/")
def update_offering_component(call: Call) -> Reply:
    """Also while resources use the component: the server does not look."""
    offering = _editable_offering(call)
    component = _named_component(call, offering)
    if component is None:
        return Reply(status=404)
    for name, value in _component_values(lookup.require_object(call)).items():
        setattr(component, name, value)
    return Reply()


@routes.on("POST", "marketplace-provider-offerings/{uuid}/remove_offering_component/")
def remove_offering_component(call: Call) -> Reply:
    offering = _editable_offering(call)
    component = _named_component(call, offering)
    if component is None:
        return Reply(status=404)
    if component.is_builtin or _resources(call, offering):
        raise ApiError(400, {"details": "The component is built in or the offering has resources."})
    offering.components.remove(component)
    return Reply()


def _editable_offering(call: Call) -> Offering:
    offering = lookup.provider_offering(call)
    scopes = access.offering_scopes(offering)
    access.require(call.store, call.user, "OFFERING.UPDATE_COMPONENTS", scopes)
    if offering.state == "Archived":
        raise bad_request("The offering is archived.")
    return offering


def _named_component(call: Call, offering: Offering) -> Component | None:
    uuid = lookup.require_object(call).get("uuid")
    if uuid is None:
        raise ApiError(400, {"details": "The uuid of the component is needed."})
    return next((c for c in offering.components if c.uuid == as_uuid(uuid)), None)


def _component_values(body: JsonObject) -> JsonObject:
    values = {name: value for name, value in body.items() if name in _EDITABLE}
    if "type" in values and not COMPONENT_TYPE.fullmatch(str(values["type"])):
        raise bad_field("type", "Letters, digits and _ - / : only, 50 at most.")
    if values.get("billing_type", "usage") not in _BILLING_TYPES:
        raise bad_field("billing_type", "Not one of the choices.")
    if values.get("limit_period") not in _LIMIT_PERIODS:
        raise bad_field("limit_period", f'"{values["limit_period"]}" is not a valid choice.')
    if values.get("is_boolean"):
        values |= {"min_value": 0, "max_value": 1, "limit_period": "month", "limit_amount": None}
    return values


def _resources(call: Call, offering: Offering) -> list[Resource]:
    return call.store.resources.where("offering", offering.uuid)
