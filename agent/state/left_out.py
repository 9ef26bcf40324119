# SPDX-License-Identifier: MIT
"""The actions that a mode leaves out by policy: `status` shows them, and a pass logs them once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from sqlite3 import Row
from typing import Any

from agent.state import columns
from agent.state.store import Db, Source, note, reading, recall, stamp

LINES_AT_MOST = 200


@dataclass(frozen=True, slots=True)
class LeftOut:
    """`count` actions that a mode leaves out, the first of them as `lines`, and `since` when it is these."""

    since: str = ""
    count: int = 0
    lines: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"since": self.since, "count": self.count, "lines": list(self.lines)}


def write(source: Source, offering_uuid: str, mode: str, lines: Sequence[str], *, meant: str) -> bool:
    """Write down what is refused, sorted. True when it is not what was refused before; `meant` tells that, whatever
    the figures in the lines.
    """
    shown = json.dumps(list(lines[:LINES_AT_MOST]))
    before = recall(source, "what is left out", lambda db: _row(db, offering_uuid, mode))
    known = (before["count"], before["meant"]) if before else (0, meant)
    is_news = known != (len(lines), meant)
    if not is_news and (before is None or before["lines"] == shown):
        return False
    since = before["since"] if before and not is_news else stamp(datetime.now(UTC))
    row = (offering_uuid, mode, since, len(lines), meant, shown)
    sql = "INSERT OR REPLACE INTO left_out VALUES (?, ?, ?, ?, ?, ?)"
    note(source, "what is left out", lambda db: db.run(sql, *row))
    return is_news and bool(lines)


def last(source: Source, offering_uuid: str, mode: str) -> LeftOut:
    """Return what the last pass over everything left out. Raises StateError."""
    with reading(source) as db:
        row = _row(db, offering_uuid, mode)
    return (
        LeftOut(row["since"], columns.number(row, "count"), columns.texts(row, "lines")) if row else LeftOut()
    )


def _row(db: Db, offering_uuid: str, mode: str) -> Row | None:
    return db.row("SELECT * FROM left_out WHERE offering = ? AND mode = ?", offering_uuid, mode)
