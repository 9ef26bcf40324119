# SPDX-License-Identifier: MIT
"""Which optional listings an offering's Waldur had, and since when it lacks the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from agent.state import columns
from agent.state.store import Db, Source, moment_text, note, recall

WHAT = "which listings Waldur has"


@dataclass(frozen=True, slots=True)
class Listing:
    """What is remembered of a listing of Waldur."""

    # UTC; None for one that was there once.
    lacking_since: datetime | None = None


def known(source: Source, offering_uuid: str, url: str) -> dict[str, Listing]:
    """Return what was seen of this server before, by listing; nothing, with a warning, where it cannot be read."""
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
