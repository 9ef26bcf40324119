# SPDX-License-Identifier: MIT
"""Accounts that a backend marked, to be remembered by every process: `backends.base.AccountMarks` on disk."""

from __future__ import annotations

from dataclasses import dataclass

from agent.state.store import Source, reading, writing


@dataclass(frozen=True, slots=True)
class MarkedAccounts:
    """The accounts with one mark. Each method raises StateError."""

    source: Source
    # Whose accounts these are.
    backend: str
    mark: str

    def __contains__(self, account: str) -> bool:
        with reading(self.source) as db:
            sql = "SELECT 1 FROM marked_accounts WHERE backend = ? AND mark = ? AND account = ?"
            return db.row(sql, self.backend, self.mark, account) is not None

    def add(self, account: str) -> None:
        with writing(self.source) as db:
            db.run("INSERT OR IGNORE INTO marked_accounts VALUES (?, ?, ?)", self.backend, self.mark, account)

    def discard(self, account: str) -> None:
        if account in self:
            with writing(self.source) as db:
                sql = "DELETE FROM marked_accounts WHERE backend = ? AND mark = ? AND account = ?"
                db.run(sql, self.backend, self.mark, account)
