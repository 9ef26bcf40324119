# SPDX-License-Identifier: MIT
"""marketplace-offering-users: the accounts of members at an offering."""

from __future__ import annotations

from functools import partial

from simulator.api.filters import Filters, choice_in, flag_is, moment_from, text_has, text_is, uuid_is
from simulator.render.people import offering_user_body
from simulator.render.view import pick
from simulator.rules import access, lookup, offering_user_rules
from simulator.rules.errors import bad_combination, bad_field
from simulator.rules.lookup import view_of
from simulator.server.routes import Call, Reply, Routes
from simulator.world.ages import Age
from simulator.world.identifiers import as_uuid, uuid_of_url
from simulator.world.records import Offering, OfferingUser, OfferingUserState, User

routes = Routes()

_MAX_USERNAME = 100


def _filters(call: Call) -> Filters[OfferingUser]:
    users = call.store.users
    filters: Filters[OfferingUser] = Filters(
        offering_uuid=uuid_is(lambda row: row.offering_uuid),
        user_uuid=uuid_is(lambda row: row.user_uuid),
        provider_uuid=uuid_is(lambda row: call.store.offerings[row.offering_uuid].customer_uuid),
        user_username=text_is(lambda row: users[row.user_uuid].username),
        state=choice_in(lambda row: row.state.value, [s.value for s in OfferingUserState]),
        is_restricted=flag_is(lambda row: row.is_restricted),
        has_consent=flag_is(lambda row: row.has_consent),
        created=moment_from(lambda row: row.created),
        modified=moment_from(lambda row: row.modified),
        query=text_has(lambda row: (row.username, users[row.user_uuid].username)),
        is_not_propagated=flag_is(lambda _: False),
    )
    new, old = ("state", "has_consent", "provider_uuid"), ("is_not_propagated",)
    return filters.without(*(old if call.age.is_modern else new))


@routes.on("GET", "marketplace-offering-users/")
def list_offering_users(call: Call) -> Reply:
    mine = lookup.visible_offering_users(call)
    rows = _filters(call).apply(mine, call.query)
    return lookup.page_of(call, rows, lambda row: offering_user_body(view_of(call), row))


@routes.on("GET", "marketplace-offering-users/{uuid}/")
def get_offering_user(call: Call) -> Reply:
    return Reply(body=pick(offering_user_body(view_of(call), lookup.offering_user(call)), call.query))


@routes.on("POST", "marketplace-offering-users/")
def create_offering_user(call: Call) -> Reply:
    offering, user = _named_offering(call), _named_user(call)
    access.require(call.store, call.user, "OFFERING.CREATE_USER", access.customer_scope(offering))
    if call.store.offering_user(offering.uuid, user.uuid) is not None:
        raise bad_combination("The pair of offering and user must be unique.")
    options = offering.plugin_options if call.age.is_modern else offering.secret_options
    if not options.get("service_provider_can_create_offering_user"):
        raise bad_combination("This offering's provider does not create its users.")
    row = offering_user_rules.create(call.store, offering, user, username=_username(call))
    return Reply(status=201, body=offering_user_body(view_of(call), row))


@routes.on("PATCH", "marketplace-offering-users/{uuid}/")
def patch_offering_user(call: Call) -> Reply:
    row = lookup.offering_user(call)
    _require_update(call, row)
    if "username" in lookup.require_object(call):
        offering_user_rules.set_username(call.store, row, _username(call))
    return Reply(body=offering_user_body(view_of(call), row))


@routes.on("POST", "marketplace-offering-users/{uuid}/update_restricted/")
def update_restricted(call: Call) -> Reply:
    row = lookup.offering_user(call)
    _require_update(call, row)
    row.is_restricted = bool(lookup.require_fields(call, "is_restricted")["is_restricted"])
    row.modified = call.store.clock.now()
    return Reply()


def _move(action: str, call: Call) -> Reply:
    row = lookup.offering_user(call)
    _require_update(call, row)
    lookup.require_object(call)
    comment, comment_url = call.text("comment"), call.text("comment_url")
    offering_user_rules.move(call.store, row, action, comment=comment, comment_url=comment_url)
    return Reply()


for _action in offering_user_rules.TRANSITIONS:
    routes.on("POST", f"marketplace-offering-users/{{uuid}}/{_action}/", since=Age.V8_0)(
        partial(_move, _action)
    )


def _require_update(call: Call, row: OfferingUser) -> None:
    offering = call.store.offerings[row.offering_uuid]
    at_offering = call.age.at_least(Age.V8_1)
    scopes = access.offering_scopes(offering) if at_offering else access.customer_scope(offering)
    access.require(call.store, call.user, "OFFERING.UPDATE_USER", scopes)


def _username(call: Call) -> str:
    username = call.text("username")
    if len(username) > _MAX_USERNAME:
        raise bad_field("username", f"Ensure this field has no more than {_MAX_USERNAME} characters.")
    return username


def _named_offering(call: Call) -> Offering:
    offering = call.store.offerings.get(_named_uuid(call, "offering"))
    if offering is None:
        raise bad_field("offering", "Invalid hyperlink - Object does not exist.")
    return offering


def _named_user(call: Call) -> User:
    user = call.store.users.get(_named_uuid(call, "user"))
    if user is None:
        raise bad_field("user", "Invalid hyperlink - Object does not exist.")
    return user


def _named_uuid(call: Call, name: str) -> str | None:
    """Return the uuid of the object given as `name` (a URL) or as `name`_uuid, never both."""
    body = lookup.require_object(call)
    by_url, by_uuid = body.get(name), body.get(f"{name}_uuid")
    if by_url is not None and by_uuid is not None:
        raise bad_field(name, f"Give either {name} or {name}_uuid.")
    if by_url is None and by_uuid is None:
        raise bad_field(name, "This field is required.")
    return uuid_of_url(by_url) if by_url is not None else as_uuid(by_uuid)
