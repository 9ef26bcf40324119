# SPDX-License-Identifier: MIT
"""Component usages, usages per user and limits per user."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from simulator.api.filters import Filters, day_matches, number_is, text_is, uuid_is
from simulator.render.view import pick
from simulator.rules import access, lookup, usage_rules
from simulator.rules.errors import ApiError, bad_field
from simulator.rules.lookup import view_of
from simulator.server.routes import Call, Reply, Routes
from simulator.world.ages import Age
from simulator.world.clock import wire_date, wire_time
from simulator.world.identifiers import as_uuid, plan_period_uuid, uuid_of_url
from simulator.world.records import ComponentUsage, JsonObject, Offering, Resource, UserUsage, UserUsageLimit

routes = Routes()


def _usage_filters(call: Call) -> Filters[ComponentUsage]:
    resources = call.store.resources
    return Filters(
        resource_uuid=uuid_is(lambda u: u.resource_uuid),
        offering_uuid=uuid_is(lambda u: resources[u.resource_uuid].offering_uuid),
        project_uuid=uuid_is(lambda u: resources[u.resource_uuid].project_uuid),
        type=text_is(lambda u: u.component_type),
        billing_period=day_matches(lambda u, day: u.billing_period == day),
        billing_period_year=number_is(lambda u: u.billing_period.year),
        billing_period_month=number_is(lambda u: u.billing_period.month),
        date_after=day_matches(lambda u, day: u.date.date() >= day),
        date_before=day_matches(lambda u, day: u.date.date() <= day),
    )


@routes.on("GET", "marketplace-component-usages/")
def list_usages(call: Call) -> Reply:
    rows = _usage_filters(call).apply(_visible_usages(call), call.query)
    rows.sort(key=lambda u: u.date, reverse=True)
    numbers = {user.uuid: number for number, user in enumerate(call.store.users, 1)}
    return lookup.page_of(call, rows, lambda u: _usage_body(call, u, numbers))


@routes.on("GET", "marketplace-component-usages/{uuid}/")
def get_usage(call: Call) -> Reply:
    numbers = {user.uuid: number for number, user in enumerate(call.store.users, 1)}
    return Reply(body=pick(_usage_body(call, _usage(call), numbers), call.query))


@routes.on("POST", "marketplace-component-usages/set_usage/", keeps_dates=True)
def set_usage(call: Call) -> Reply:
    """Set totals of a month. The body is validated before the permission is checked."""
    store = call.store
    items = _items(call, "amount")
    resource = _reported_resource(call)
    moment = usage_rules.parse_date(store, call.field("date"))
    offering = store.offering_of(resource)
    types = {c.type: c for c in offering.components}
    components = usage_rules.require_components(types, [str(item["type"]) for item in items])
    access.require(store, call.user, "RESOURCE.SET_USAGE", access.offering_scopes(offering))
    usage_rules.require_backfill(store, call.user, resource, components=components, moment=moment)
    month = store.clock.month_of(moment or store.clock.now())
    for component, item in zip(components, items, strict=True):
        amount = Decimal(str(item["amount"]))
        usage_rules.require_within_limit(store, resource, component, amount=amount, month=month)
    rows = [
        usage_rules.store_usage(store, resource, component, item=item, moment=moment)
        for component, item in zip(components, items, strict=True)
    ]
    for row in rows:
        row.modified_by_uuid = call.user.uuid
    if not call.age.is_modern:
        resource.reported_usages = {row.component_type: _decimal(row.usage) for row in rows}
    return Reply(status=201)


def _items(call: Call, value_name: str) -> list[JsonObject]:
    """Return the list under `usages`, each item with a valid number; refusals mirror the list."""
    items = lookup.require_fields(call, "usages")["usages"]
    if not isinstance(items, list) or not items:
        raise bad_field("usages", "This list may not be empty.")
    key_name = "type" if value_name == "amount" else "username"
    problems = [_item_problems(item, key_name, value_name) for item in items]
    if any(problems):
        raise ApiError(400, {"usages": problems})
    return items


def _item_problems(item: Any, key_name: str, value_name: str) -> JsonObject:
    if not isinstance(item, dict):
        return {"non_field_errors": ["Invalid data: an object was expected."]}
    problems: JsonObject = {}
    if not item.get(key_name):
        problems[key_name] = ["This field is required."]
    if value_name not in item:
        # The usage of a user may be omitted and then is 0.
        if value_name == "amount":
            problems[value_name] = ["This field is required."]
        return problems
    amount = usage_rules.parse_amount(item[value_name])
    if isinstance(amount, str):
        problems[value_name] = [amount]
    return problems


def _reported_resource(call: Call) -> Resource:
    uuid, period = call.field("resource"), as_uuid(call.field("plan_period"))
    if uuid is None and period is None:
        raise bad_field("resource", "Either resource or plan_period is needed.")
    resource = call.store.resources.get(plan_period_uuid(period) if period else as_uuid(uuid))
    if resource is None:
        raise bad_field("resource", f"There is no object with uuid={uuid}")
    if resource.state not in usage_rules.REPORTABLE_STATES:
        raise bad_field("resource", "Resource is not in valid state.")
    if call.store.plan_of(resource) is None:
        # The 2024 server trips over the missing plan.
        status = 400 if call.age.is_modern else 500
        raise ApiError(status, {"resource": ["The resource has no plan."]})
    return resource


@routes.on("POST", "marketplace-component-usages/{uuid}/set_user_usage/", keeps_dates=True)
def set_user_usage(call: Call) -> Reply:
    row = _writable_usage(call)
    body = lookup.require_fields(call, "username")
    problems = _item_problems(body, "username", "usage")
    if problems:
        raise ApiError(400, problems)
    moment = _checked_moment(call, row, body)
    _store_user_usage(call, row, body, moment)
    return Reply(status=201)


@routes.on("POST", "marketplace-component-usages/{uuid}/set_user_usages/", since=Age.V8_0, keeps_dates=True)
def set_user_usages(call: Call) -> Reply:
    """Set the usage of several users, all or nothing: every item is checked before the first is stored."""
    row = _writable_usage(call)
    items = _items(call, "usage")
    moments = [_checked_moment(call, row, item) for item in items]
    for item, moment in zip(items, moments, strict=True):
        _store_user_usage(call, row, item, moment)
    if call.age.at_least(Age.V8_1) and row.usage == 0:
        row.usage = sum((u.usage for u in call.store.user_usages.where("usage", row.uuid)), Decimal(0))
    return Reply(status=201)


def _checked_moment(call: Call, row: ComponentUsage, item: JsonObject) -> datetime | None:
    """Return the moment of a user's usage. Raises ApiError where it is not taken."""
    store = call.store
    resource = store.resources[row.resource_uuid]
    component = store.offering_of(resource).component(row.component_type)
    moment = usage_rules.parse_date(store, item.get("date"))
    components = [component] if component else []
    usage_rules.require_backfill(store, call.user, resource, components=components, moment=moment)
    usage_rules.require_within_user_limit(
        store, row, user_uuid=uuid_of_url(item.get("user")), usage=Decimal(str(item.get("usage", 0)))
    )
    return moment


def _store_user_usage(call: Call, row: ComponentUsage, item: JsonObject, moment: datetime | None) -> None:
    store = call.store
    resource = store.resources[row.resource_uuid]
    if moment is not None:
        row = usage_rules.usage_row(store, resource, row.component_type, moment=moment)
    usage_rules.store_user_usage(
        store,
        row,
        username=str(item["username"]),
        usage=Decimal(str(item.get("usage", 0))),
        user_uuid=uuid_of_url(item.get("user")),
    )


@routes.on("GET", "marketplace-component-user-usages/")
def list_user_usages(call: Call) -> Reply:
    """Filter the rows above first: those of users are many more."""
    above = _usage_filters(call).without("project_uuid", "billing_period", "date_after", "date_before")
    period: Filters[ComponentUsage] = Filters(
        component_usage__billing_period=day_matches(lambda u, day: u.billing_period == day)
    )
    if not call.age.is_modern:
        period = period.without("component_usage__billing_period")
    filtered = period.apply(above.apply(_visible_usages(call), call.query), call.query)
    usages = {usage.uuid for usage in filtered}
    mine = [u for u in call.store.user_usages if u.component_usage_uuid in usages]
    filters: Filters[UserUsage] = Filters(username=text_is(lambda u: u.username))
    return lookup.page_of(call, filters.apply(mine, call.query), lambda u: _user_usage_body(call, u))


@routes.on("GET", "component-user-usage-limits/", since=Age.V8_0)
def list_user_limits(call: Call) -> Reply:
    resources = call.store.resources
    filters: Filters[UserUsageLimit] = Filters(
        resource_uuid=uuid_is(lambda u: u.resource_uuid),
        offering_uuid=uuid_is(lambda u: resources[u.resource_uuid].offering_uuid),
        component_type=text_is(lambda u: u.component_type),
    )
    visible = _visible_resources(call)
    mine = [u for u in call.store.user_limits if u.resource_uuid in visible]
    return lookup.page_of(call, filters.apply(mine, call.query), lambda u: _limit_body(call, u))


def _visible_usages(call: Call) -> list[ComponentUsage]:
    visible = _visible_resources(call)
    return [usage for usage in call.store.usages if usage.resource_uuid in visible]


def _visible_resources(call: Call) -> frozenset[str]:
    store, user = call.store, call.user
    provided, consumed = access.provided(store, user), access.consumed(store, user)
    return frozenset(
        r.uuid for r in store.resources if r.offering_uuid in provided or r.project_uuid in consumed
    )


def _sees(call: Call, row: ComponentUsage) -> bool:
    store, user = call.store, call.user
    resource = store.resources[row.resource_uuid]
    is_provider = access.provides(store, user, store.offering_of(resource))
    return is_provider or access.consumes(store, user, resource)


def _usage(call: Call) -> ComponentUsage:
    return lookup.visible_row(call, call.store.usages, "ComponentUsage", lambda u: _sees(call, u))


def _writable_usage(call: Call) -> ComponentUsage:
    row = _usage(call)
    offering: Offering = call.store.offering_of(call.store.resources[row.resource_uuid])
    access.require(call.store, call.user, "RESOURCE.SET_USAGE", access.offering_scopes(offering))
    return row


def _decimal(value: Decimal) -> str:
    return f"{value:.2f}"


def _place(call: Call, resource: Resource) -> JsonObject:
    store = call.store
    offering, customer = store.offering_of(resource), store.customer_of(resource)
    project = store.projects[resource.project_uuid]
    return {
        "resource_name": resource.name,
        "resource_uuid": resource.uuid,
        "offering_name": offering.name,
        "offering_uuid": offering.uuid,
        "project_name": project.name,
        "project_uuid": project.uuid,
        "customer_name": customer.name,
        "customer_uuid": customer.uuid,
    }


def _unit(call: Call, row: ComponentUsage) -> tuple[str, str]:
    offering = call.store.offering_of(call.store.resources[row.resource_uuid])
    component = offering.component(row.component_type)
    return (component.name, component.measured_unit) if component else (row.component_type, "")


def _usage_body(call: Call, row: ComponentUsage, numbers: Mapping[str, int]) -> JsonObject:
    """Return a row as JSON. `numbers`: of users by uuid, as the server's database counts them."""
    name, unit = _unit(call, row)
    return {
        "uuid": row.uuid,
        "created": wire_time(row.created),
        "description": row.description,
        "type": row.component_type,
        "name": name,
        "measured_unit": unit,
        "usage": _decimal(row.usage),
        "date": wire_time(row.date),
        "recurring": row.recurring,
        **_place(call, call.store.resources[row.resource_uuid]),
        "billing_period": wire_date(row.billing_period),
        "modified_by": numbers[row.modified_by_uuid] if row.modified_by_uuid else None,
    }


def _user_usage_body(call: Call, row: UserUsage) -> JsonObject:
    view = view_of(call)
    usage = call.store.usages[row.component_usage_uuid]
    body: JsonObject = {
        "uuid": row.uuid,
        "user": view.link("marketplace-offering-users", row.offering_user_uuid),
        "username": row.username,
        "component_usage": view.link("marketplace-component-usages", usage.uuid),
        "usage": _decimal(row.usage),
        "measured_unit": _unit(call, usage)[1],
        "description": "",
        "created": wire_time(row.created),
        "modified": wire_time(row.modified),
        "backend_id": "",
        **_place(call, call.store.resources[usage.resource_uuid]),
        "component_type": usage.component_type,
        "date": wire_time(usage.date),
    }
    return body | {"billing_period": wire_date(usage.billing_period)} if call.age.is_modern else body


def _limit_body(call: Call, row: UserUsageLimit) -> JsonObject:
    view = view_of(call)
    component = call.store.offering_of(call.store.resources[row.resource_uuid]).component(row.component_type)
    return {
        "url": view.link("component-user-usage-limits", row.uuid),
        "uuid": row.uuid,
        "resource": view.link("marketplace-provider-resources", row.resource_uuid),
        "component": component.uuid if component else None,
        "component_type": row.component_type,
        "user": view.link("marketplace-offering-users", row.offering_user_uuid),
        "limit": _decimal(row.limit),
    }
