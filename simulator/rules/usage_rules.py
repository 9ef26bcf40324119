# SPDX-License-Identifier: MIT
"""Usage reports: what is accepted, and how a value replaces the month's earlier one.

Values are set, never added. One row per resource, component and month; user rows hang on it by username.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

from simulator.rules import access
from simulator.rules.errors import ApiError, bad_combination, bad_field
from simulator.world.records import (
    Component,
    ComponentUsage,
    JsonObject,
    Resource,
    ResourceState,
    User,
    UserUsage,
)
from simulator.world.store import Store

REPORTABLE_STATES = (ResourceState.OK, ResourceState.UPDATING, ResourceState.TERMINATING)
_REPORTABLE_TYPES = ("usage", "limit")
_MAX_DIGITS, _MAX_PLACES = 20, 2


def parse_amount(value: object) -> Decimal | str:
    """Return the amount, or a sentence about what is wrong with it."""
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return "A valid number is required."
    if isinstance(value, bool) or not amount.is_finite():
        return "A valid number is required."
    _, digits, exponent = amount.as_tuple()
    places = max(0, -int(exponent))
    whole = max(0, len(digits) - places + max(0, int(exponent)))
    if places > _MAX_PLACES:
        return f"Ensure that there are no more than {_MAX_PLACES} decimal places."
    if whole > _MAX_DIGITS - _MAX_PLACES:
        return (
            f"Ensure that there are no more than {_MAX_DIGITS - _MAX_PLACES} digits before the decimal point."
        )
    return amount


def parse_date(store: Store, value: object) -> datetime | None:
    """Return the moment of the usage; None for now. The 2024 server ignores the field. Raises ApiError."""
    if value is None or not store.age.is_modern:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise bad_field("date", "Datetime has wrong format.") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment > store.clock.now():
        raise bad_field("date", "The date is in the future.")
    return moment


def require_backfill(
    store: Store, user: User, resource: Resource, *, components: list[Component], moment: datetime | None
) -> None:
    """Refuse usage of an earlier month, except of staff, and of a provider's owner for limit components."""
    if moment is None or user.is_staff:
        return
    offering = store.offering_of(resource)
    if not access.may(store, user, "RESOURCE.SET_USAGE", access.customer_scope(offering)):
        raise bad_field("date", "Only the provider's customer level may give a date.")
    if store.clock.month_of(moment) == store.clock.month_of(store.clock.now()):
        return
    if any(component.billing_type != "limit" for component in components):
        raise bad_field("date", "Backfilling past billing periods is for limit components only.")


def require_components(resource_types: dict[str, Component], wanted: list[str]) -> list[Component]:
    unknown = [
        name
        for name in wanted
        if name not in resource_types or resource_types[name].billing_type not in _REPORTABLE_TYPES
    ]
    if unknown:
        raise bad_combination(f"Unknown components: {', '.join(unknown)}")
    return [resource_types[name] for name in wanted]


def require_within_limit(
    store: Store, resource: Resource, component: Component, *, amount: Decimal, month: date
) -> None:
    """Refuse usage above the limit. Stored usage counts too, even the row about to be replaced: a repeat can fail."""
    if component.billing_type != "usage" or not component.limit_period or component.limit_amount is None:
        return
    stored = sum(
        (
            row.usage
            for row in store.usages.where("resource", resource.uuid)
            if row.component_type == component.type and _same_period(component, row.billing_period, month)
        ),
        Decimal(0),
    )
    if stored + amount > component.limit_amount:
        raise bad_combination(f"{component.type}: {stored + amount} exceeds {component.limit_amount}")


def store_usage(
    store: Store, resource: Resource, component: Component, *, item: JsonObject, moment: datetime | None
) -> ComponentUsage:
    row = usage_row(store, resource, component.type, moment=moment)
    row.usage = Decimal(str(item["amount"]))
    row.date = moment or store.clock.now()
    row.description = str(item.get("description", ""))
    row.recurring = bool(item.get("recurring", False))
    return row


def usage_row(
    store: Store, resource: Resource, component_type: str, *, moment: datetime | None
) -> ComponentUsage:
    """Return the month's row of the component, made with usage 0 when it is missing."""
    now = store.clock.now()
    month = store.clock.month_of(moment or now)
    for row in store.usages.where("resource", resource.uuid):
        if row.component_type == component_type and row.billing_period == month:
            return row
    return store.usages.add(
        ComponentUsage(
            uuid=store.uuids.new(),
            resource_uuid=resource.uuid,
            component_type=component_type,
            billing_period=month,
            usage=Decimal(0),
            date=moment or now,
            created=now,
        )
    )


def require_within_user_limit(
    store: Store, row: ComponentUsage, *, user_uuid: str | None, usage: Decimal
) -> None:
    for limit in store.user_limits.where("resource", row.resource_uuid):
        if limit.component_type != row.component_type or limit.offering_user_uuid != user_uuid:
            continue
        stored = sum(
            (
                u.usage
                for u in store.user_usages.where("usage", row.uuid)
                if u.offering_user_uuid == user_uuid
            ),
            Decimal(0),
        )
        if stored + usage > limit.limit:
            raise ApiError(400, {"usage": [f"{stored + usage} exceeds the user's limit {limit.limit}"]})


def store_user_usage(
    store: Store, row: ComponentUsage, *, username: str, usage: Decimal, user_uuid: str | None
) -> UserUsage:
    """Set the usage of a username. The row keeps the user of its first report; later ones change the value only."""
    now = store.clock.now()
    for known in store.user_usages.where("usage", row.uuid):
        if known.username == username:
            known.usage, known.modified = usage, now
            return known
    return store.user_usages.add(
        UserUsage(
            uuid=store.uuids.new(),
            component_usage_uuid=row.uuid,
            username=username,
            usage=usage,
            created=now,
            modified=now,
            offering_user_uuid=user_uuid,
        )
    )


def _same_period(component: Component, one: date, other: date) -> bool:
    if component.limit_period == "total":
        return True
    if component.limit_period == "annual":
        return one.year == other.year
    if component.limit_period == "quarterly":
        return (one.year, (one.month - 1) // 3) == (other.year, (other.month - 1) // 3)
    return one == other
