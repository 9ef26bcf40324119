# SPDX-License-Identifier: MIT
"""Offerings that were paused by command: their passes look and plan, and change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from sqlite3 import Row

from agent.config.model import Offering
from agent.core.errors import StateUnreadable
from agent.state import columns
from agent.state.store import Source, reading, stamp, writing


def pause(
    source: Source, offering: Offering, *, by: str, reason: str = "", until: datetime | None = None
) -> None:
    """Pause an offering, for good or until a moment. Raises StateError: then nothing is changed."""
    with writing(source) as db:
        now, end = stamp(datetime.now(UTC)), stamp(until) if until else ""
        sql = "INSERT OR REPLACE INTO pauses (offering, by, reason, since, until) VALUES (?, ?, ?, ?, ?)"
        db.run(sql, offering.uuid, by, reason, now, end)


def resume(source: Source, offering: Offering) -> None:
    """Resume an offering. Raises StateError: then it stays paused."""
    with writing(source) as db:
        db.run("DELETE FROM pauses WHERE offering = ?", offering.uuid)


def pause_note(source: Source, offering: Offering) -> str:
    """Return who paused the offering by command, since when and how long; empty when it is not paused. Not knowing
    counts as paused. Raises StateBusy.
    """
    try:
        with reading(source) as db:
            row = db.row("SELECT * FROM pauses WHERE offering = ?", offering.uuid)
        if row is None or _has_ended(row):
            return ""
    except StateUnreadable as error:
        return f"perhaps: {error}"
    until = f" until {row['until']}" if row["until"] else ""
    reason = f" ({row['reason']})" if row["reason"] else ""
    return f"by {row['by']} since {row['since']}{until}{reason}"


def ended(source: Source) -> Mapping[str, str]:
    """Return the pauses that have ended by themselves, as offering's uuid and end. Raises StateError."""
    with reading(source) as db:
        return {row["offering"]: row["until"] for row in db.rows("SELECT * FROM pauses") if _has_ended(row)}


def forget_ended(source: Source, offering: Offering, until: str) -> None:
    """Forget a pause that has ended, but not a new one. Raises StateError."""
    with writing(source) as db:
        db.run("DELETE FROM pauses WHERE offering = ? AND until = ?", offering.uuid, until)


def _has_ended(row: Row) -> bool:
    return bool(row["until"]) and columns.moment(row, "until") <= datetime.now(UTC)
