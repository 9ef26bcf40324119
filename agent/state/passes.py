# SPDX-License-Identifier: MIT
"""The last passes of each offering and mode: what `status` shows without a broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent.state import columns, counts
from agent.state.counts import Sums
from agent.state.store import Db, Source, note, recall

KEPT = 10


def add(
    source: Source,
    offering_uuid: str,
    mode: str,
    entry: Mapping[str, Any],
    *,
    idle: bool,
    sums: Sums = MappingProxyType({}),
) -> bool:
    """Write down how a pass ended, and add to the sums of what passes did. Passes that found nothing to do replace each
    other. False, with a warning, where it cannot be written.
    """
    which = (offering_uuid, mode)

    def work(db: Db) -> None:
        last = db.row(
            "SELECT number, idle FROM passes WHERE offering = ? AND mode = ? ORDER BY number DESC", *which
        )
        if last and last["idle"] and idle:
            db.run("DELETE FROM passes WHERE number = ?", last["number"])
        db.run(
            "INSERT INTO passes (offering, mode, ended, idle, entry) VALUES (?, ?, ?, ?, ?)",
            *(*which, str(entry["ended"]), int(idle), json.dumps(entry, default=str)),
        )
        db.run(
            "DELETE FROM passes WHERE offering = ? AND mode = ? AND number NOT IN "
            "(SELECT number FROM passes WHERE offering = ? AND mode = ? ORDER BY number DESC LIMIT ?)",
            *(*which, *which, KEPT),
        )
        counts.add(db, offering_uuid, mode, sums)

    return note(source, "the last pass", work)


def last(source: Source, offering_uuid: str, mode: str) -> list[dict[str, Any]]:
    """Return the entries, newest first; none, with a warning, where nobody can tell."""
    sql = "SELECT entry FROM passes WHERE offering = ? AND mode = ? ORDER BY number DESC"

    def work(db: Db) -> list[dict[str, Any]]:
        return [columns.mapping(row, "entry") for row in db.rows(sql, offering_uuid, mode)]

    return recall(source, "the last passes", work) or []
