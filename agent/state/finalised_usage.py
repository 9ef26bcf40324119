# SPDX-License-Identifier: MIT
"""Sums of the jobs that had ended at the last full count of a large cluster, by month, account and user.

A later report adds to them what counts still (backends/slurm/count.py). Without them a month is counted in full. There
is one row for each account: thousands of accounts are read and written in a fraction of a second.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from sqlite3 import Row

from agent.core.usage import Counts, FinalisedMonth, FinalisedUsage
from agent.state.columns import mapping, number
from agent.state.store import Db, Source, note, recall

log = logging.getLogger(__name__)

WHAT = "the sums of jobs that have ended"
TABLES = ("finalised_usage", "finalised_months", "finalised_accounts")

Accounts = dict[str, Mapping[str, Counts]]


def load(source: Source, offering_uuid: str) -> FinalisedUsage | None:
    """Return what is kept; None, with a warning, where it cannot be read."""
    return recall(source, WHAT, lambda db: _read(db, offering_uuid))


def save(source: Source, offering_uuid: str, finalised: FinalisedUsage) -> bool:
    """Replace what is kept of an offering. False, with a warning, where that is not possible."""

    def work(db: Db) -> None:
        _delete(db, offering_uuid)
        head = (
            finalised.source,
            finalised.taken,
            finalised.size,
            finalised.before,
            finalised.watched,
            finalised.month,
        )
        db.run("INSERT INTO finalised_usage VALUES (?, ?, ?, ?, ?, ?, ?)", offering_uuid, *head)
        for name, month in finalised.months.items():
            rows = [(account, json.dumps(users)) for account, users in sorted(month.accounts.items())]
            which = (offering_uuid, name)
            db.run(
                "INSERT INTO finalised_months VALUES (?, ?, ?, ?)", *which, month.records, _fingerprint(rows)
            )
            db.run_many(
                "INSERT INTO finalised_accounts VALUES (?, ?, ?, ?)", ((*which, *row) for row in rows)
            )

    return note(source, WHAT, work)


def drop(source: Source, offering_uuid: str) -> bool:
    """Forget what is kept of an offering. False, with a warning, where that is not possible."""
    sql = "SELECT 1 FROM finalised_usage WHERE offering = ?"
    if recall(source, WHAT, lambda db: db.row(sql, offering_uuid)) is None:
        return True
    return note(source, WHAT, lambda db: _delete(db, offering_uuid))


def _delete(db: Db, offering_uuid: str) -> None:
    for table in TABLES:
        db.run(f"DELETE FROM {table} WHERE offering = ?", offering_uuid)  # noqa: S608  our own names


def _read(db: Db, offering_uuid: str) -> FinalisedUsage | None:
    head = db.row("SELECT * FROM finalised_usage WHERE offering = ?", offering_uuid)
    if head is None:
        return None
    months = {}
    for row in db.rows("SELECT * FROM finalised_months WHERE offering = ?", offering_uuid):
        accounts = _accounts(db, offering_uuid, row)
        if accounts is None:
            log.warning(
                "the sums of %s in %s are not those that were written: they are not used, and usage is counted in full",
                row["month"],
                db.path,
            )
            return None
        months[row["month"]] = FinalisedMonth(number(row, "records"), accounts)
    return FinalisedUsage(
        source=head["source"],
        taken=number(head, "taken"),
        size=number(head, "size"),
        before=number(head, "before"),
        watched=head["watched"],
        month=head["month"],
        months=months,
    )


def _accounts(db: Db, offering_uuid: str, month: Row) -> Accounts | None:
    """Return the sums of a month; None where they are not those that were written: usage is billed."""
    sql = "SELECT account, users FROM finalised_accounts WHERE offering = ? AND month = ? ORDER BY account"
    rows = db.rows(sql, offering_uuid, month["month"])
    if _fingerprint((row["account"], row["users"]) for row in rows) != month["fingerprint"]:
        return None
    return {row["account"]: mapping(row, "users", dict) for row in rows}


def _fingerprint(rows: Iterable[tuple[str, str]]) -> str:
    found = blake2b(digest_size=16)
    for account, users in rows:
        found.update(f"{account}\0{users}\0".encode("utf-8", "backslashreplace"))
    return found.hexdigest()
