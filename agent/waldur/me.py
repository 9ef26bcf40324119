# SPDX-License-Identifier: MIT
"""The user whose token the client has, what roles may do, and the server's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from agent.waldur import records
from agent.waldur.client import WaldurClient

PATH = "users/me/"
ROLES = "roles/"


@dataclass(frozen=True, slots=True)
class Me:
    username: str
    is_staff: bool


def whoami(client: WaldurClient) -> Me:
    """Return the token's user. Raises WaldurError. Servers of 2024 show `is_staff` to staff only."""
    record = client.get(PATH, [("field", "username"), ("field", "is_staff")])
    return Me(str(record.get("username") or "unknown"), record.get("is_staff") is True)


@dataclass(frozen=True, slots=True)
class Role:
    """A role of the user."""

    role: str
    scope_type: str
    scope_uuid: str
    scope_name: str
    # None where it has no end.
    expires: datetime | None


@dataclass(frozen=True, slots=True)
class Account:
    """The token's user with all roles."""

    username: str
    full_name: str
    is_staff: bool
    roles: tuple[Role, ...]


def account(client: WaldurClient) -> Account:
    """Return the token's user with all roles. Raises WaldurError."""
    wanted = ("username", "full_name", "is_staff", "permissions")
    record = client.get(PATH, [("field", name) for name in wanted])
    listed = record.get("permissions")
    roles = [_role(item) for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []
    return Account(
        str(record.get("username") or "unknown"),
        str(record.get("full_name") or ""),
        record.get("is_staff") is True,
        tuple(roles),
    )


def server_time(client: WaldurClient) -> datetime | None:
    """Return Waldur's time to the second, as the header of an answer names it; None where it names none. Raises
    WaldurError.
    """
    text = client.header(PATH, "Date", [("field", "uuid")])
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return None


def rights_of_roles(client: WaldurClient) -> Mapping[str, frozenset[str]]:
    """Return what each role of the server may do, by its name: its definition, wherever it is given. Whoever has a
    token may read it (5.8.4 and later). Raises WaldurError.
    """
    items = client.pages(ROLES, [("field", "uuid"), ("field", "name"), ("field", "permissions")])
    found = {}
    for item in items:
        listed = item.get("permissions")
        if isinstance(listed, list):
            found[str(item.get("name"))] = frozenset(map(str, listed))
    return found


def _role(item: Mapping[str, Any]) -> Role:
    """Return a role. Servers omit fields that the user may not see."""
    return Role(
        role=str(item.get("role_name") or "a role"),
        scope_type=str(item.get("scope_type") or "scope"),
        scope_uuid=records.hex_text(item, "scope_uuid"),
        scope_name=str(item.get("scope_name") or ""),
        expires=records.moment(item, "expiration_time"),
    )
