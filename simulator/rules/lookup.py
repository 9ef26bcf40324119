# SPDX-License-Identifier: MIT
"""Find the object that a request is about, or refuse: 404 when it is missing or not visible to the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from simulator.api.paging import Page, paginate
from simulator.render.view import View, pick
from simulator.rules import access
from simulator.rules.errors import ApiError, bad_field, unknown_object
from simulator.server.routes import Call, Reply
from simulator.world.identifiers import as_uuid
from simulator.world.records import JsonObject, Offering, OfferingUser, Order, Record, Resource
from simulator.world.store import ServiceProvider
from simulator.world.table import Table

T = TypeVar("T", bound=Record)


def view_of(call: Call) -> View:
    return View(call.store, call.root_url)


def visible_row(call: Call, table: Table[T], kind: str, is_visible: Callable[[T], bool]) -> T:
    row = table.get(call.uuid)
    if row is None or not is_visible(row):
        raise unknown_object(kind)
    return row


def order(call: Call) -> Order:
    return visible_row(
        call, call.store.orders, "Order", lambda o: access.sees_order(call.store, call.user, o)
    )


def provider_resource(call: Call) -> Resource:
    store = call.store
    return visible_row(
        call, store.resources, "Resource", lambda r: access.provides(store, call.user, store.offering_of(r))
    )


def consumer_resource(call: Call) -> Resource:
    return visible_row(
        call, call.store.resources, "Resource", lambda r: access.consumes(call.store, call.user, r)
    )


def provider_offering(call: Call) -> Offering:
    return visible_row(
        call, call.store.offerings, "Offering", lambda o: access.provides(call.store, call.user, o)
    )


def offering_user(call: Call) -> OfferingUser:
    return visible_row(
        call, call.store.offering_users, "OfferingUser", lambda row: sees_offering_user(call, row)
    )


def sees_offering_user(call: Call, row: OfferingUser) -> bool:
    offering = call.store.offerings[row.offering_uuid]
    if call.user.is_staff or call.user.is_support:
        return True
    if offering.enforces_consent and not row.has_consent:
        return False
    return access.provides(call.store, call.user, offering)


def visible_offering_users(call: Call) -> list[OfferingUser]:
    """Return those that the caller may see, of the offerings asked for; where an offering asks for consent, those who
    gave it.
    """
    store, user = call.store, call.user
    sees_all = user.is_staff or user.is_support
    visible = (
        frozenset(offering.uuid for offering in store.offerings) if sees_all else access.provided(store, user)
    )
    asked = frozenset(as_uuid(text) for text in call.query.get("offering_uuid", ()) if text) or visible
    found: list[OfferingUser] = []
    for offering in store.offerings:
        if offering.uuid in visible & asked:
            rows = store.offering_users.where("offering", offering.uuid)
            is_open = sees_all or not offering.enforces_consent
            found += rows if is_open else [row for row in rows if row.has_consent]
    return found


def service_provider(call: Call) -> ServiceProvider:
    return visible_row(call, call.store.providers, "ServiceProvider", lambda _: True)


def page_of(
    call: Call, rows: list[T], render: Callable[[T], JsonObject], *, has_fields: bool = True
) -> Reply:
    """Return one page of the rows, rendered, cut to the fields asked for and described in the headers."""
    page: Page[T] = paginate(
        rows, call.query, url=f"{call.root_url}/api/{call.path}", settings=call.store.settings
    )
    bodies = [render(row) for row in page.rows]
    if has_fields:
        bodies = [pick(body, call.query) for body in bodies]
    return Reply(body=bodies, headers=page.headers)


def require_object(call: Call) -> JsonObject:
    """Return the request's body as an object; an absent one counts as empty."""
    if call.body is None:
        return {}
    if not isinstance(call.body, dict):
        raise bad_field("non_field_errors", "Invalid data: an object was expected.")
    return call.body


def require_fields(call: Call, *names: str) -> JsonObject:
    body = require_object(call)
    missing = {name: ["This field is required."] for name in names if name not in body}
    if missing:
        raise ApiError(400, missing)
    return body
