# SPDX-License-Identifier: MIT
"""Usage that was not reported to Waldur while it took any: `status` shows it until a person has put it right there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from agent.state.store import Source, note, reading, stamp

WHAT = "usage that was not reported to Waldur"


@dataclass(frozen=True, slots=True)
class UnreportedUsage:
    """The usage of one resource in a month."""

    resource: str
    account: str
    # Written `2024-03`.
    month: str
    # In Waldur's units, as what it has and what it should have.
    figures: str
    # Why it was not reported.
    why: str
    # When that was found.
    since: str = ""

    def as_json(self) -> dict[str, str]:
        return {
            "resource": self.resource,
            "account": self.account,
            "month": self.month,
            "figures": self.figures,
            "why": self.why,
            "since": self.since,
        }


def add(source: Source, offering_uuid: str, row: UnreportedUsage) -> bool:
    """Write down what was not reported, in place of what was known of the same month. False, with a warning, where it
    cannot be written.
    """
    values = (
        *(offering_uuid, row.resource, row.month, row.account, row.figures, row.why),
        stamp(datetime.now(UTC)),
    )
    sql = "INSERT OR REPLACE INTO unreported_usage VALUES (?, ?, ?, ?, ?, ?, ?)"
    return note(source, WHAT, lambda db: db.run(sql, *values))


def of_offering(source: Source, offering_uuid: str) -> Sequence[UnreportedUsage]:
    """Return what was not reported of an offering, the oldest first. Raises StateError."""
    sql = "SELECT * FROM unreported_usage WHERE offering = ? ORDER BY since, account, month"
    with reading(source) as db:
        return [
            UnreportedUsage(
                row["resource"], row["account"], row["month"], row["figures"], row["why"], row["since"]
            )
            for row in db.rows(sql, offering_uuid)
        ]
