# SPDX-License-Identifier: MIT
"""What a report has to remember: closed months that Waldur refuses, and the jobs that still counted up.

Without it nothing is wrong: Waldur is asked once more, and a decrease has no explanation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agent.core.periods import Month
from agent.core.usage import JobUse
from agent.state.hints import FAILED_RESOURCES, LIVE_JOBS, REFUSED_MONTHS
from agent.state.store import Source

# A token may get more rights: then Waldur takes what it refused before.
REFUSED_FOR = timedelta(days=1)
JOBS_AT_MOST = 20_000
DATES = "dates"
LIMITS = " with limits"


@dataclass
class ReportState:
    """What is remembered between the reports of an offering."""

    # Until when a month is not tried again, or a date.
    refused: dict[str, datetime] = field(default_factory=dict)
    # Seconds by account and run of a job, by month.
    live: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    # Resources whose report failed.
    failed: frozenset[str] = frozenset()

    def is_refused(self, month: Month, now: datetime, *, limits: bool = False) -> bool:
        """Return whether Waldur does not take all of a closed month; with `limits`, none of it."""
        return self._holds(_closed(month, limits), now)

    def refused_until(self, month: Month) -> datetime:
        """Return when a month that is refused is tried again."""
        found = (self.refused.get(name) for name in (str(month), DATES))
        return max(until for until in found if until)

    def refuse(self, month: Month, now: datetime, *, limits: bool = False) -> bool:
        """Record that Waldur refuses a month; True where that is news."""
        return self._note(_closed(month, limits), now)

    def takes_no_dates(self, now: datetime) -> bool:
        """Return whether Waldur takes none from our token."""
        return self._holds(DATES, now)

    def refuse_dates(self, now: datetime) -> bool:
        """Record that Waldur takes no dates; True where that is news."""
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
        """Return runs of jobs that had not ended at the last report of the account, with what they had counted then."""
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
    """Return what was recorded; nothing, with a warning, where it cannot be read."""
    return ReportState(
        REFUSED_MONTHS.all(source, offering_uuid) or {},
        LIVE_JOBS.all(source, offering_uuid) or {},
        frozenset(FAILED_RESOURCES.all(source, offering_uuid) or ()),
    )


def save(source: Source, offering_uuid: str, memory: ReportState) -> bool:
    """Write down what has changed. False, with a warning, where that is not possible."""
    before = load(source, offering_uuid)
    failed = dict.fromkeys(memory.failed - before.failed, True)
    return (
        REFUSED_MONTHS.change(source, offering_uuid, before.refused, memory.refused)
        and LIVE_JOBS.change(source, offering_uuid, before.live, memory.live)
        and FAILED_RESOURCES.put(source, offering_uuid, failed, before.failed - memory.failed)
    )


def _closed(month: Month, limits: bool) -> str:
    return f"{month}{LIMITS}" if limits else str(month)
