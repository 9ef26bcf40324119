# SPDX-License-Identifier: MIT
"""The user whose token the client has."""

from __future__ import annotations

from dataclasses import dataclass

from agent.waldur.client import WaldurClient

PATH = "users/me/"


@dataclass(frozen=True, slots=True)
class Me:
    username: str
    is_staff: bool


def whoami(client: WaldurClient) -> Me:
    """Return the token's user. Raises WaldurError. Servers of 2024 show `is_staff` to staff only."""
    record = client.get(PATH, [("field", "username"), ("field", "is_staff")])
    return Me(str(record.get("username") or "unknown"), record.get("is_staff") is True)
