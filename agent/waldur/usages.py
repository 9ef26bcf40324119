# SPDX-License-Identifier: MIT
"""Usage as Waldur keeps it: one record for each resource, component and month, with the shares of users below it.

Values are set, never added: the same request twice does the same as once. Servers before 8.0.5 take the shares of
users one by one; servers of 2024 ignore dates and would file a past month under the present one. Without a date
Waldur takes its own present month.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from agent.core.errors import WaldurError, WaldurLacks
from agent.core.periods import Month
from agent.core.usage import UsageRecord, UserUsageRecord
from agent.waldur import records
from agent.waldur.client import WaldurClient

PATH = "marketplace-component-usages/"
USER_PATH = "marketplace-component-user-usages/"
OFFERING_PATH = "marketplace-provider-offerings/"
BULK = "set_user_usages"
DATE = "date"
DATES = "usage of past months"
# The oldest server that is known to have this has dates of usage, too; those of 2024 have neither.
DATES_KNOWN_BY = "user-attribute-config/"
# Waldur 8.0: a provider's token may not change what was billed.
BACKFILL = "backfilling past billing periods"
# Words of a refusal: `field: why`, or a sentence about the whole request.
OF_DATE = re.compile(r"date: |[^:]*\bdate\b[^:]*$", re.IGNORECASE)
OTHER_FAULTS = re.compile(r"future|format", re.IGNORECASE)
RECORD_FIELDS = ("uuid", "type", "usage", "resource_uuid", "billing_period")
# Sums and roundings of anything beyond would end in an error, or in numbers of a million digits.
MAX_EXPONENT = 30
USER_FIELDS = ("uuid", "username", "usage", "component_usage")


def of_month(client: WaldurClient, month: Month, resource_uuid: str = "") -> list[UsageRecord]:
    """Return what the offering's resources, or one of them, have in a month. Raises WaldurError."""
    day = month.first_day.isoformat()
    params = [("offering_uuid", client.offering_uuid), ("billing_period", day), *_only(resource_uuid)]
    items = client.pages(PATH, [*params, *(("field", name) for name in RECORD_FIELDS)])
    return [
        UsageRecord(
            uuid=records.uuid(item, "a usage record"),
            resource=records.hex_text(item, "resource_uuid"),
            component=str(item.get("type") or ""),
            amount=amount(item.get("usage")),
        )
        for item in items
        if item.get("billing_period", day) == day
    ]


def of_users(client: WaldurClient, month: Month, resource_uuid: str = "") -> list[UserUsageRecord]:
    """Return what users have in a month, in all resources of the offering or in one. Raises WaldurError."""
    params = [
        ("offering_uuid", client.offering_uuid),
        *_only(resource_uuid),
        ("billing_period_year", str(month.year)),
        ("billing_period_month", str(month.month)),
    ]
    items = client.pages(USER_PATH, [*params, *(("field", name) for name in USER_FIELDS)])
    # Tens of thousands of shares have few different texts, each of which is kept once.
    texts: dict[str, str] = {}
    found = []
    for item in items:
        record = records.hex_text({"uuid": records.last_part(item.get("component_usage"))}, "uuid")
        username = str(item.get("username") or "")
        found.append(
            UserUsageRecord(
                record=texts.setdefault(record, record),
                username=texts.setdefault(username, username),
                amount=amount(item.get("usage")),
            )
        )
    return found


def set_totals(
    client: WaldurClient, resource_uuid: str, amounts: Iterable[tuple[str, str]], date: datetime | None
) -> None:
    """Set components of one resource in the month of `date`; all of them or none. Raises WaldurError."""
    listed = [{"type": component, "amount": value} for component, value in amounts]
    body = {"usages": listed, "resource": resource_uuid, **_dated(date)}
    client.post(f"{PATH}set_usage/", body, repeatable=True)


def set_users(
    client: WaldurClient,
    record_uuid: str,
    amounts: Sequence[tuple[str, str]],
    links: Mapping[str, str],
    date: datetime | None,
) -> Mapping[str, WaldurError]:
    """Set users' shares of one record; `links` has their offering users by name. In one request where the server can.

    A share that Waldur refuses keeps none of the others back: the result names who was refused, and why. Raises
    WaldurError where nothing could be sent, and where the month or its date is refused. `date` is that of the record.
    """
    items = []
    for name, value in amounts:
        item = {"username": name, "usage": value, **_dated(date)}
        if link := links.get(name):
            item["user"] = f"{client.url}marketplace-offering-users/{link}/"
        items.append(item)
    if client.if_supported(BULK):
        try:
            return _in_bulk(client, record_uuid, items)
        except WaldurLacks as error:
            client.note_missing(BULK, error)
    refused: dict[str, WaldurError] = {}
    for item in items:
        try:
            client.post(f"{PATH}{record_uuid}/set_user_usage/", item, repeatable=True)
        except WaldurError as error:
            if error.status != 400 or refuses_month(error):
                raise
            refused[item["username"]] = error
    return refused


def _in_bulk(
    client: WaldurClient, record_uuid: str, items: Sequence[Mapping[str, str]]
) -> dict[str, WaldurError]:
    """Send a list of shares. Waldur takes it whole or not at all: where it refuses, the culprit is found by halves."""
    try:
        client.post(f"{PATH}{record_uuid}/{BULK}/", {"usages": items}, repeatable=True)
    except WaldurError as error:
        if error.status != 400 or refuses_month(error):
            raise
        if len(items) == 1:
            return {items[0]["username"]: error}
        half = len(items) // 2
        of_first = _in_bulk(client, record_uuid, items[:half])
        return {**of_first, **_in_bulk(client, record_uuid, items[half:])}
    client.features.note_there(BULK)
    return {}


def takes_dates(client: WaldurClient) -> bool:
    """Return whether usage of past months can be submitted. One request, until the answer is known. Raises
    WaldurError.
    """
    features = client.features
    if features.has(DATES) or features.lacks(DATES):
        return features.has(DATES)
    try:
        client.get(f"{OFFERING_PATH}{client.offering_uuid}/{DATES_KNOWN_BY}")
    except WaldurLacks as error:
        client.note_missing(DATES, error)
        return False
    except WaldurError as error:
        if error.status != 403:
            raise
    features.note_there(DATES)
    return True


def is_backfill(error: WaldurError) -> bool:
    """Return whether Waldur refuses because the month is closed for this token."""
    return error.status == 400 and BACKFILL in error.detail.lower()


def refuses_date(error: WaldurError) -> bool:
    """Return whether Waldur takes no date from this token. 8.0: who has rights at the offering only, not at its
    provider.
    """
    if error.status != 400 or is_backfill(error) or OTHER_FAULTS.search(error.detail):
        return False
    return any(map(OF_DATE.match, error.detail.split("; ")))


def refuses_month(error: WaldurError) -> bool:
    """Return whether Waldur refuses the month, not the figures."""
    return is_backfill(error) or refuses_date(error)


def amount(value: Any) -> Decimal | None:
    """Return a number as Waldur prints it: text with decimals in 8.x, a number before; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) <= MAX_EXPONENT else None


def _only(resource_uuid: str) -> list[tuple[str, str]]:
    return [("resource_uuid", resource_uuid)] if resource_uuid else []


def _dated(date: datetime | None) -> dict[str, str]:
    return {DATE: date.isoformat()} if date else {}
