# SPDX-License-Identifier: MIT
"""What changes have cost people, by cluster: the memory of the budgets of an hour and a day.

A charge is written before the change is made, in the transaction that decided about it, so that two passes at once
cannot both find room for the same budget. What belongs to a plan that a person approved is kept, and does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from agent.core.policy import Charge, Cost, History
from agent.state.store import Db, Source, moment_text, reading, writing

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
KEPT_FOR = timedelta(days=2)
# A charge further ahead was written by a clock that was wrong.
AHEAD_AT_MOST = timedelta(minutes=1)


def history(source: Source, cluster: str, now: datetime) -> History:
    """Return the distinct charges of a cluster that no person approved, of the last hour and the last day, and those
    that a person did approve, while that approval is open: once its plan is done, the same again is a new act. `paid`:
    all of the last hour.

    One from the future counts as of now, and is written down so where the transaction may write: a clock that was set
    back neither frees a budget nor blocks it for long. Raises StateError.
    """
    with reading(source) as db:
        if db.is_writing:
            _restamp(db, now)
        found = db.rows(
            "SELECT at, plan, cost, account, user, EXISTS (SELECT 1 FROM approvals WHERE approvals.plan = charges.plan "
            "AND approvals.offering = charges.offering AND approvals.mode = charges.mode) AS is_open "
            "FROM charges WHERE cluster = ? AND at > ?",
            cluster,
            moment_text(now - DAY),
        )
    within_hour = moment_text(now - HOUR)
    known = {cost.value for cost in Cost}
    spent = [
        (
            row["at"],
            bool(row["plan"]),
            bool(row["is_open"]),
            Charge(Cost(row["cost"]), row["account"], row["user"]),
        )
        for row in found
        if row["cost"] in known
    ]
    return History(
        hour=frozenset(c for at, is_approved, _, c in spent if at > within_hour and not is_approved),
        day=frozenset(c for _, is_approved, _, c in spent if not is_approved),
        approved=frozenset(c for _, is_approved, is_open, c in spent if is_approved and is_open),
        paid=frozenset(c for at, _, _, c in spent if at > within_hour),
    )


def reserve(  # noqa: PLR0913  each is a column
    source: Source,
    charges: Iterable[Charge],
    *,
    cluster: str,
    offering: str,
    mode: str,
    pass_id: str,
    now: datetime,
    plan: str = "",
) -> None:
    """Write down what is about to be spent. `plan`: the id of the approved plan that it belongs to, then it does not
    count. Raises StateError: what cannot be written down must not be done.
    """
    where = (moment_text(now), cluster, offering, mode, pass_id, plan)
    with writing(source) as db:
        db.run_many(
            "INSERT INTO charges (at, cluster, offering, mode, pass, plan, cost, account, user) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ((*where, charge.cost.value, charge.account, charge.user) for charge in charges),
        )


def forget_old(source: Source, now: datetime) -> int:
    """Delete what no budget counts any more; return how many rows. Raises StateError."""
    with writing(source) as db:
        _restamp(db, now)
        return db.run("DELETE FROM charges WHERE at < ?", moment_text(now - KEPT_FOR))


def _restamp(db: Db, now: datetime) -> None:
    db.run("UPDATE charges SET at = ? WHERE at > ?", moment_text(now), moment_text(now + AHEAD_AT_MOST))
