# SPDX-License-Identifier: MIT
"""Messages that could not be understood. They are bounded: the oldest go first.

They lie in the bridge's own file: it may run as another user than the worker.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import astuple, dataclass

from agent.state.columns import strange
from agent.state.store import Db, Source, reading, writing

KEPT_AT_MOST = 1000
# Below `state_dir`: the bridge may run as another user than the worker, who has a file of its own.
FOLDER = "bridge"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message from the broker that could not be understood."""

    id: str
    time: str
    offering_uuid: str
    source: str
    object_type: str
    reason: str
    size: int
    # As text, or as base64 where it is none; cut where the message was larger than any of Waldur's.
    body: str
    is_base64: bool = False

    def content(self) -> bytes:
        """Return the message as it came. Raises StateUnreadable."""
        try:
            return base64.b64decode(self.body) if self.is_base64 else self.body.encode()
        except ValueError:
            raise strange("body", self.body) from None


def park(source: Source, letter: DeadLetter) -> bool:
    """Write a letter down; return whether it is new. Raises StateError."""
    with reading(source) as db:
        if _is_known(db, letter.id):
            return False
    with writing(source) as db:
        if _is_known(db, letter.id):
            return False  # another process has written it since
        db.run(
            "INSERT INTO dead_letters (id, time, offering, source, object_type, reason, size, body, is_base64) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *astuple(letter),
        )
        db.run(
            "DELETE FROM dead_letters WHERE number NOT IN "
            "(SELECT number FROM dead_letters ORDER BY number DESC LIMIT ?)",
            KEPT_AT_MOST,
        )
    return True


def listed(source: Source) -> list[DeadLetter]:
    """Return them, oldest first, each once. Raises StateError."""
    with reading(source) as db:
        return [
            DeadLetter(
                row["id"],
                row["time"],
                row["offering"],
                row["source"],
                row["object_type"],
                row["reason"],
                row["size"],
                row["body"],
                bool(row["is_base64"]),
            )
            for row in db.rows("SELECT * FROM dead_letters ORDER BY number")
        ]


def take(source: Source, wanted: Callable[[DeadLetter], bool]) -> int:
    """Remove those for which `wanted` is true; return how many. Raises StateError."""
    if not any(map(wanted, listed(source))):
        return 0
    with writing(source) as db:
        gone = [(letter.id,) for letter in listed(db) if wanted(letter)]
        db.run_many("DELETE FROM dead_letters WHERE id = ?", gone)
    return len(gone)


def _is_known(db: Db, id: str) -> bool:
    return db.row("SELECT 1 FROM dead_letters WHERE id = ?", id) is not None
