# SPDX-License-Identifier: MIT
"""Since when Waldur lists nothing for an offering and mode: an empty list is believed only after a while."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from sqlite3 import Row

from agent.state import store
from agent.state.store import Db, Source, moment_from, moment_text, reading, recall

WHAT = "an empty answer"
# One listing that is empty by mistake forgets nothing; one that stays empty for so long is believed.
BELIEVED_AFTER = timedelta(hours=1)


def note(source: Source, offering_uuid: str, mode: str, *, is_empty: bool) -> None:
    """Write down since when Waldur lists nothing, or that it lists something. Where that fails is a warning."""
    since = recall(source, WHAT, lambda db: _row(db, offering_uuid, mode))
    if is_empty == (since is not None):
        return
    now = moment_text(datetime.now(UTC))
    store.note(
        source,
        WHAT,
        lambda db: (
            db.run("INSERT INTO empty_answers VALUES (?, ?, ?)", offering_uuid, mode, now)
            if is_empty
            else db.run("DELETE FROM empty_answers WHERE offering = ? AND mode = ?", offering_uuid, mode)
        ),
    )


def is_believed(source: Source, offering_uuid: str, mode: str) -> bool:
    """Return whether Waldur has listed nothing for so long that it is no mistake. Raises StateError."""
    with reading(source) as db:
        row = _row(db, offering_uuid, mode)
    return row is not None and datetime.now(UTC) - moment_from(row["since"]) > BELIEVED_AFTER


def _row(db: Db, offering_uuid: str, mode: str) -> Row | None:
    return db.row("SELECT since FROM empty_answers WHERE offering = ? AND mode = ?", offering_uuid, mode)
