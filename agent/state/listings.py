# SPDX-License-Identifier: MIT
"""Which optional listings an offering's Waldur had, and since when it lacks the others; and when it was seen last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agent.state import columns
from agent.state.store import Db, Source, moment_text, note, recall

WHAT = "which listings Waldur has"


@dataclass(frozen=True, slots=True)
class Listing:
    """`lacking_since`: UTC; None for one that was there once."""

    lacking_since: datetime | None = None


def known(source: Source, offering_uuid: str, url: str) -> dict[str, Listing]:
    """Return what was seen of this server before, by listing; nothing, with a warning, where nobody can tell."""
    sql = "SELECT * FROM waldur_listings WHERE offering = ? AND url = ?"

    def work(db: Db) -> dict[str, Listing]:
        return {
            row["listing"]: Listing(columns.moment(row, "lacking_since") if row["lacking_since"] else None)
            for row in db.rows(sql, offering_uuid, url)
        }

    return recall(source, WHAT, work) or {}


def write(source: Source, offering_uuid: str, url: str, listings: Mapping[str, Listing]) -> bool:
    """Replace what is known of the offering's server. False, with a warning, where that is not possible."""

    def work(db: Db) -> None:
        db.run("DELETE FROM waldur_listings WHERE offering = ?", offering_uuid)
        for name, listing in listings.items():
            since = moment_text(listing.lacking_since) if listing.lacking_since else ""
            db.run("INSERT INTO waldur_listings VALUES (?, ?, ?, ?)", offering_uuid, name, url, since)

    return note(source, WHAT, work)


def was_seen(source: Source, offering_uuid: str, url: str, within: timedelta) -> bool:
    """Return whether the offering was seen in Waldur so lately. A moment from the future tells nothing."""
    sql = "SELECT at FROM seen_offerings WHERE offering = ? AND url = ?"

    def work(db: Db) -> datetime | None:
        row = db.row(sql, offering_uuid, url)
        return columns.moment(row, "at") if row else None

    seen = recall(source, "when the offering was seen", work)
    return seen is not None and timedelta() <= datetime.now(UTC) - seen < within


def note_seen(source: Source, offering_uuid: str, url: str) -> bool:
    sql = "INSERT OR REPLACE INTO seen_offerings VALUES (?, ?, ?)"
    now = moment_text(datetime.now(UTC))
    return note(source, "that the offering was seen", lambda db: db.run(sql, offering_uuid, url, now))
