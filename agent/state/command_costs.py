# SPDX-License-Identifier: MIT
"""How slow a cluster's commands were lately against what was expected of them: `backends.base.CostFactors` on disk."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agent.state import columns
from agent.state.store import Db, Source, moment_text, note, recall

WHAT = "how slow the cluster's commands are"
# What made a cluster slow may be over by then.
COUNTS_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CommandCosts:
    """The factors of one cluster, or of all that share what makes them slow."""

    source: Source
    cluster: str

    def read(self, kind: str) -> float | None:
        """Return the factor of a kind of command; None where there is none of the last day, or nobody can tell."""

        def work(db: Db) -> float | None:
            sql = "SELECT factor, at FROM command_costs WHERE cluster = ? AND kind = ?"
            row = db.row(sql, self.cluster, kind)
            if row is None or not timedelta() <= datetime.now(UTC) - columns.moment(row, "at") < COUNTS_FOR:
                return None
            return columns.real(row, "factor")

        return recall(self.source, WHAT, work)

    def write(self, kind: str, factor: float) -> None:
        """Remember a factor. Where that is not possible, log a warning."""

        def work(db: Db) -> None:
            sql = "INSERT OR REPLACE INTO command_costs VALUES (?, ?, ?, ?)"
            db.run(sql, self.cluster, kind, factor, moment_text(datetime.now(UTC)))

        note(self.source, WHAT, work)
