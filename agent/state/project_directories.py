# SPDX-License-Identifier: MIT
"""What was done about the project directories of an offering.

A hint and nothing more: without it every quota is set once more, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.project_directories import DirectoryRecord
from agent.state.store import Db, Source, note, recall

WHAT = "what was done about project directories"


def records(source: Source, offering_uuid: str) -> dict[str, DirectoryRecord]:
    """Return what is known by account; nothing where it cannot be read, with a warning."""

    def work(db: Db) -> dict[str, DirectoryRecord]:
        rows = db.rows("SELECT * FROM project_directories WHERE offering = ?", offering_uuid)
        return {row["account"]: DirectoryRecord(row["quota"], row["told"]) for row in rows}

    return recall(source, WHAT, work) or {}


def write(source: Source, offering_uuid: str, changed: Mapping[str, DirectoryRecord]) -> bool:
    """Write records down. False, with a warning, where that is not possible."""
    rows = [(offering_uuid, account, of.quota, of.told) for account, of in changed.items()]
    return not rows or note(
        source,
        WHAT,
        lambda db: db.run_many("INSERT OR REPLACE INTO project_directories VALUES (?, ?, ?, ?)", rows),
    )
