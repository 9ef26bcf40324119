# SPDX-License-Identifier: MIT
"""What a report has to remember: closed months that Waldur refuses, and the jobs that still counted up.

Without it nothing is wrong: Waldur is asked once more, and a decrease has no explanation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from agent.core.periods import Month
from agent.core.usage import JobUse
from agent.state.columns import moment, number
from agent.state.store import Db, Source, note, recall

# A token may get more rights: then Waldur takes what it refused before.
REFUSED_FOR = timedelta(days=1)
JOBS_AT_MOST = 20_000
DATES = "dates"
LIMITS = " with limits"
WHAT = "what reports have to know"
COLUMNS = {
    "refused_months": ("month", "until"),
    "live_jobs": ("month", "account", "run", "seconds"),
    "failed_resources": ("resource",),
}


@dataclass
class ReportState:
    """`refused`: until when a month is not tried again, or a date. `live`: seconds by account and run of a
    job, by month. `failed`: resources that were told of in vain.
    """

    refused: dict[str, datetime] = field(default_factory=dict)
    live: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()

    def is_refused(self, month: Month, now: datetime, *, limits: bool = False) -> bool:
        """Return whether Waldur does not take all of a closed month; with `limits`, none of it."""
        return self._holds(_closed(month, limits), now)

    def refused_until(self, month: Month) -> datetime:
        """Return when a month that is refused is tried again."""
        found = (self.refused.get(name) for name in (str(month), DATES))
        return max(until for until in found if until)

    def refuse(self, month: Month, now: datetime, *, limits: bool = False) -> bool:
        """True where that is news."""
        return self._note(_closed(month, limits), now)

    def takes_no_dates(self, now: datetime) -> bool:
        """Return whether Waldur takes none from our token."""
        return self._holds(DATES, now)

    def refuse_dates(self, now: datetime) -> bool:
        """True where that is news."""
        return self._note(DATES, now)

    def _holds(self, name: str, now: datetime) -> bool:
        until = self.refused.get(name)
        return until is not None and now < until <= now + REFUSED_FOR

    def _note(self, name: str, now: datetime) -> bool:
        is_news = name not in self.refused
        self.refused[name] = now + REFUSED_FOR
        return is_news

    def note_live(self, month: Month, jobs: Sequence[JobUse]) -> None:
        found: dict[str, dict[str, int]] = {}
        for job in jobs[:JOBS_AT_MOST]:
            found.setdefault(job.account, {})[job.run] = job.seconds
        self.live[str(month)] = found

    def jobs_of(self, month: Month, account: str) -> Mapping[str, int]:
        """Runs of jobs that had not ended when the account was told of last, with what they had counted then."""
        return self.live.get(str(month), {}).get(account, {})

    def keep(self, months: Iterable[Month]) -> None:
        """Forget all others."""
        names = {str(month) for month in months}
        self.refused = {
            name: until
            for name, until in self.refused.items()
            if name.removesuffix(LIMITS) in {*names, DATES}
        }
        self.live = {name: jobs for name, jobs in self.live.items() if name in names}


def load(source: Source, offering_uuid: str) -> ReportState:
    """Nothing, with a warning, where nobody can tell."""
    return recall(source, WHAT, lambda db: _read(db, offering_uuid)) or ReportState()


def save(source: Source, offering_uuid: str, memory: ReportState) -> bool:
    """Write down what has changed. False, with a warning, where that is not possible."""
    before = recall(source, WHAT, lambda db: _rows(db, offering_uuid))
    after: dict[str, set[tuple[Any, ...]]] = {
        "refused_months": {(month, until.isoformat()) for month, until in memory.refused.items()},
        "live_jobs": {
            (month, account, run, seconds)
            for month, accounts in memory.live.items()
            for account, jobs in accounts.items()
            for run, seconds in jobs.items()
        },
        "failed_resources": {(resource,) for resource in memory.failed},
    }
    if before == after:
        return True

    def work(db: Db) -> None:
        known = _rows(db, offering_uuid)
        for table, columns in COLUMNS.items():
            which = " AND ".join(f"{column} = ?" for column in ("offering", *columns))
            marks = ", ".join("?" for _ in ("offering", *columns))
            gone = ((offering_uuid, *row) for row in known[table] - after[table])
            new = ((offering_uuid, *row) for row in after[table] - known[table])
            db.run_many(f"DELETE FROM {table} WHERE {which}", gone)  # noqa: S608  our own names
            db.run_many(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", new)  # noqa: S608  our own names

    return note(source, WHAT, work)


def _rows(db: Db, offering_uuid: str) -> dict[str, set[tuple[Any, ...]]]:
    return {
        table: {
            tuple(row[column] for column in columns)
            for row in db.rows(f"SELECT * FROM {table} WHERE offering = ?", offering_uuid)  # noqa: S608
        }
        for table, columns in COLUMNS.items()
    }


def _read(db: Db, offering_uuid: str) -> ReportState:
    refused = db.rows("SELECT * FROM refused_months WHERE offering = ?", offering_uuid)
    failed = db.rows("SELECT * FROM failed_resources WHERE offering = ?", offering_uuid)
    memory = ReportState(
        refused={row["month"]: moment(row, "until") for row in refused},
        failed=frozenset(row["resource"] for row in failed),
    )
    for row in db.rows("SELECT * FROM live_jobs WHERE offering = ?", offering_uuid):
        jobs = memory.live.setdefault(row["month"], {}).setdefault(row["account"], {})
        jobs[row["run"]] = number(row, "seconds")
    return memory


def _closed(month: Month, limits: bool) -> str:
    return f"{month}{LIMITS}" if limits else str(month)
