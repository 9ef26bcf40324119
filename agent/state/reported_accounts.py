# SPDX-License-Identifier: MIT
"""The accounts whose usage is reported. Two offerings that name one on one cluster, and count the same of it, would
bill it twice; and one that no resource names any more has lost its last usage.

Every report records the accounts that it covers; the others, and the next one, look there. Offerings that count
different things of one account (cpu here, GPUs there) do not meet. What another host's agent reports is unknown here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from agent.core.account_names import fold
from agent.core.model import Resource
from agent.state.store import Db, Source, moment_text, note, recall

WHAT = "which accounts offerings report"


def write(source: Source, cluster: str, offering_uuid: str, resources: Iterable[Resource]) -> bool:
    """Record for the other offerings which accounts this one reports. False, with a warning, where it cannot be
    written.
    """
    accounts = frozenset(fold(resource.backend_id) for resource in resources if resource.backend_id)
    which = (cluster, offering_uuid)
    if recall(source, WHAT, lambda db: _accounts(db, *which)) == accounts:
        return True

    def work(db: Db) -> None:
        db.run("DELETE FROM reported_accounts WHERE cluster = ? AND offering = ?", *which)
        now = moment_text(datetime.now(UTC))
        db.run_many(
            "INSERT OR IGNORE INTO reported_accounts VALUES (?, ?, ?, ?)",
            ((*which, account, now) for account in sorted(accounts)),
        )

    return note(source, WHAT, work)


def of_offering(source: Source, cluster: str, offering_uuid: str) -> frozenset[str]:
    """Return the accounts that the last report covered; none where that cannot be read."""
    return recall(source, WHAT, lambda db: _accounts(db, cluster, offering_uuid)) or frozenset()


def forget(source: Source, cluster: str, offering_uuid: str, ended: Iterable[Resource]) -> bool:
    """Note that orders have reported the last usage of these. False, with a warning, where it cannot be written."""
    rows = [(cluster, offering_uuid, fold(resource.backend_id)) for resource in ended]
    sql = "DELETE FROM reported_accounts WHERE cluster = ? AND offering = ? AND account = ?"
    return not rows or note(source, WHAT, lambda db: db.run_many(sql, rows))


def of_others(source: Source, cluster: str, others: Mapping[str, str]) -> Mapping[str, str]:
    """Return the accounts that other offerings (names by uuid) report, with the name of one of these each."""

    def work(db: Db) -> dict[str, str]:
        return {account: name for uuid, name in others.items() for account in _accounts(db, cluster, uuid)}

    return recall(source, WHAT, work) or {}


def _accounts(db: Db, cluster: str, offering_uuid: str) -> frozenset[str]:
    sql = "SELECT account FROM reported_accounts WHERE cluster = ? AND offering = ?"
    return frozenset(row["account"] for row in db.rows(sql, cluster, offering_uuid))
