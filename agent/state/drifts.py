# SPDX-License-Identifier: MIT
"""The last drift report of each offering and mode, so that `status` shows it without looking again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.state import columns
from agent.state.store import Db, Source, note, recall


@dataclass(frozen=True, slots=True)
class Drift:
    """`kinds`: how many actions of each kind would bring Waldur and the cluster together. `since`: UTC, as text."""

    looked: str
    since: str = ""
    kinds: Mapping[str, int] = field(default_factory=dict)

    @property
    def differences(self) -> int:
        return sum(self.kinds.values())


def write(source: Source, offering_uuid: str, mode: str, drift: Drift) -> bool:
    """False, with a warning, where it cannot be written down."""
    values = (offering_uuid, mode, drift.looked, drift.since, json.dumps(dict(drift.kinds)))
    sql = "INSERT OR REPLACE INTO drifts VALUES (?, ?, ?, ?, ?)"
    return note(source, "the drift report", lambda db: db.run(sql, *values))


def last(source: Source, offering_uuid: str, mode: str) -> Drift | None:
    """Return the last report, None where there is none that can be read."""
    sql = "SELECT * FROM drifts WHERE offering = ? AND mode = ?"

    def work(db: Db) -> Drift | None:
        row = db.row(sql, offering_uuid, mode)
        return Drift(row["looked"], row["since"], columns.mapping(row, "kinds", int)) if row else None

    return recall(source, "the last drift report", work)
