# SPDX-License-Identifier: MIT
"""Waldur's clock, as the header of an answer names it."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from agent.waldur.client import WaldurClient

PATH = "users/me/"


def now(client: WaldurClient) -> datetime | None:
    """Return the time, to the second; None where the answer names none. Raises WaldurError."""
    text = client.header(PATH, "Date", [("field", "uuid")])
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return None
