# SPDX-License-Identifier: MIT
"""Since when Waldur lists nothing for an offering and mode: an empty list is believed only after a while."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agent.state import columns, store
from agent.state.store import AHEAD_AT_MOST, Db, Source, moment_text, reading, recall

WHAT = "an empty answer"
# One listing that is empty by mistake forgets nothing; one that stays empty for so long is believed.
BELIEVED_AFTER = timedelta(hours=1)


def note(source: Source, offering_uuid: str, mode: str, *, is_empty: bool) -> None:
    """Write down since when Waldur lists nothing, or that it lists something. Where that fails is a warning."""
    since = recall(source, WHAT, lambda db: _since(db, offering_uuid, mode))
    now = datetime.now(UTC)
    is_ahead = since is not None and since > now + AHEAD_AT_MOST
    if is_empty == (since is not None) and not is_ahead:
        return
    store.note(
        source,
        WHAT,
        lambda db: (
            db.run(
                "INSERT OR REPLACE INTO empty_answers VALUES (?, ?, ?)", offering_uuid, mode, moment_text(now)
            )
            if is_empty
            else db.run("DELETE FROM empty_answers WHERE offering = ? AND mode = ?", offering_uuid, mode)
        ),
    )


def is_believed(source: Source, offering_uuid: str, mode: str) -> bool:
    """Return whether Waldur has listed nothing for so long that it is no mistake. Raises StateError."""
    with reading(source) as db:
        since = _since(db, offering_uuid, mode)
    return since is not None and datetime.now(UTC) - since > BELIEVED_AFTER


def _since(db: Db, offering_uuid: str, mode: str) -> datetime | None:
    row = db.row("SELECT since FROM empty_answers WHERE offering = ? AND mode = ?", offering_uuid, mode)
    return columns.moment(row, "since") if row else None
