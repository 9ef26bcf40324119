# SPDX-License-Identifier: MIT
"""Offerings that were paused by command: their passes look and plan, and change nothing."""

from __future__ import annotations

from datetime import UTC, datetime

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
        if row is None or (row["until"] and columns.moment(row, "until") <= datetime.now(UTC)):
            return ""
    except StateUnreadable as error:
        return f"perhaps: {error}"
    until = f" until {row['until']}" if row["until"] else ""
    reason = f" ({row['reason']})" if row["reason"] else ""
    return f"by {row['by']} since {row['since']}{until}{reason}"
