# SPDX-License-Identifier: MIT
"""What was done about the homes of an offering's users.

A hint and nothing more: without it every home is looked at once more, and every quota set once more.
"""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

from agent.core.homes import NOTHING, HomeRecord
from agent.state import columns
from agent.state.store import Db, Source, Store, note, recall

WHAT = "what was done about homes"


class HomeState:
    """Read when made; what has changed is written by `save`."""

    def __init__(self, source: Source, offering_uuid: str) -> None:
        self.users = recall(source, WHAT, lambda db: _read(db, offering_uuid)) or {}
        self._source = source
        self._offering = offering_uuid
        self._saved = dict(self.users)

    @property
    def path(self) -> Path:
        return Store(self._source).path if isinstance(self._source, Path) else self._source.path

    def __getitem__(self, user: str) -> HomeRecord:
        return self.users.get(user, NOTHING)

    def __setitem__(self, user: str, record: HomeRecord) -> None:
        self.users[user] = record

    def save(self) -> bool:
        """Write down what has changed since. False, with a warning, where that is not possible."""
        kept = {name: of for name, of in self.users.items() if of != NOTHING}
        changed = [
            (self._offering, name, *astuple(of)) for name, of in kept.items() if self._saved.get(name) != of
        ]
        gone = [(self._offering, name) for name in self._saved if name not in kept]
        if not changed and not gone:
            return True

        def work(db: Db) -> None:
            db.run_many("INSERT OR REPLACE INTO homes VALUES (?, ?, ?, ?, ?, ?)", changed)
            db.run_many("DELETE FROM homes WHERE offering = ? AND user = ?", gone)

        if not note(self._source, WHAT, work):
            return False
        self._saved = kept
        return True


def _read(db: Db, offering_uuid: str) -> dict[str, HomeRecord]:
    return {
        row["user"]: HomeRecord(row["home"], row["quota"], columns.number(row, "failures"), row["told"])
        for row in db.rows("SELECT * FROM homes WHERE offering = ?", offering_uuid)
    }
