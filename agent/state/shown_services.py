# SPDX-License-Identifier: MIT
"""How Waldur knows the agent at an offering, by mode: so that another process, or the next pass, need not ask."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from agent.state import columns
from agent.state.store import Db, Source, moment_text, note, recall

WHAT = "how Waldur knows the agent"


@dataclass(frozen=True, slots=True)
class ShownService:
    """`identity` and `service`: uuids, empty where there are none. `program`: what was registered. `renewed` and
    `refused`: when it was told last that it lives, and when Waldur last would not have it; UTC.
    """

    identity: str = ""
    service: str = ""
    program: str = ""
    renewed: datetime | None = None
    refused: datetime | None = None


def known(source: Source, offering_uuid: str, mode: str, url: str) -> ShownService:
    """Return what this server knows of a mode; nothing, with a warning, where nobody can tell."""
    sql = "SELECT * FROM shown_services WHERE offering = ? AND mode = ? AND url = ?"

    def work(db: Db) -> ShownService:
        row = db.row(sql, offering_uuid, mode, url)
        if row is None:
            return ShownService()
        return ShownService(
            row["identity"],
            row["service"],
            row["program"],
            columns.moment(row, "renewed") if row["renewed"] else None,
            columns.moment(row, "refused") if row["refused"] else None,
        )

    return recall(source, WHAT, work) or ShownService()


def write(source: Source, offering_uuid: str, mode: str, url: str, shown: ShownService) -> bool:
    """Replace what is known of a mode. False, with a warning, where that is not possible."""
    sql = "INSERT OR REPLACE INTO shown_services VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    moments = [moment_text(at) if at else "" for at in (shown.renewed, shown.refused)]
    row = (offering_uuid, mode, url, shown.identity, shown.service, shown.program, *moments)
    return note(source, WHAT, lambda db: db.run(sql, *row))
