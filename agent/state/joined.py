# SPDX-License-Identifier: MIT
"""Who has joined an account that had members already, within the last day: percentages of leavers go by who was in
before. Otherwise users who join in one pass would make room for all others to leave in the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from datetime import datetime, timedelta

from agent.state.store import AHEAD_AT_MOST, Db, Source, moment_text, note, reading

KEPT_FOR = timedelta(days=1)


def write(source: Source, cluster: str, joined: Iterable[tuple[str, str]], now: datetime) -> bool:
    """Note who joins now, by account and user. False, with a warning, where it cannot be written down."""
    at = moment_text(now)
    rows = [(cluster, account, user, at) for account, user in joined]

    def work(db: Db) -> None:
        db.run(
            "DELETE FROM joined_members WHERE at < ? OR at > ?",
            moment_text(now - KEPT_FOR),
            moment_text(now + AHEAD_AT_MOST),
        )
        db.run_many("INSERT OR REPLACE INTO joined_members VALUES (?, ?, ?, ?)", rows)

    return not rows or note(source, "who has joined", work)


def of_accounts(
    source: Source, cluster: str, accounts: Set[str], now: datetime
) -> Mapping[str, frozenset[str]]:
    """Return by account who has joined these within the last day. Raises StateError."""
    if not accounts:
        return {}
    with reading(source) as db:
        rows = db.rows(
            "SELECT account, user FROM joined_members WHERE cluster = ? AND at > ?",
            cluster,
            moment_text(now - KEPT_FOR),
        )
    found: dict[str, set[str]] = {}
    for row in rows:
        if row["account"] in accounts:
            found.setdefault(row["account"], set()).add(row["user"])
    return {account: frozenset(users) for account, users in found.items()}
