# SPDX-License-Identifier: MIT
"""What a report has to remember: closed months that Waldur refuses, and the jobs that still counted up.

A file per offering in `state_dir/reports`. Without it nothing is wrong: Waldur is asked once more, and a decrease
has no explanation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from agent.core.periods import Month
from agent.core.usage import JobUse
from agent.run.site import Site
from agent.state import json_files as state_files
from agent.state.json_files import Unreadable

# A token may get more rights: then Waldur takes what it refused before.
REFUSED_FOR = timedelta(days=1)
JOBS_AT_MOST = 20_000
DATES = "dates"
LIMITS = " with limits"


@dataclass
class Memory:
    """`refused`: until when a month is not tried again, or a date. `live`: seconds by account and run of a
    job, by month. `failed`: resources that were told of in vain.
    """

    refused: dict[str, datetime] = field(default_factory=dict)
    live: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()

    def is_refused(self, month: Month, now: datetime, *, limits: bool = False) -> bool:
        """Whether Waldur does not take all of a closed month; with `limits`, none of it."""
        return self._holds(_closed(month, limits), now)

    def refused_until(self, month: Month) -> datetime:
        """When a month that is refused is tried again."""
        found = (self.refused.get(name) for name in (str(month), DATES))
        return max(until for until in found if until)

    def refuse(self, month: Month, now: datetime, *, limits: bool = False) -> bool:
        """True where that is news."""
        return self._note(_closed(month, limits), now)

    def takes_no_dates(self, now: datetime) -> bool:
        """Whether Waldur takes none from our token."""
        return self._holds(DATES, now)

    def refuse_dates(self, now: datetime) -> bool:
        """True where that is news."""
        return self._note(DATES, now)

    def _holds(self, name: str, now: datetime) -> bool:
        until = self.refused.get(name)
        return until is not None and now < until

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


def load(site: Site) -> Memory:
    try:
        document = state_files.read_json(file_of(site)) or {}
    except Unreadable:
        return Memory()
    return Memory(
        _moments(document.get("refused")), _jobs(document.get("live")), _names(document.get("failed"))
    )


def save(site: Site, memory: Memory) -> None:
    refused = {name: until.isoformat() for name, until in memory.refused.items()}
    document = {"refused": refused, "live": memory.live, "failed": sorted(memory.failed)}
    state_files.write_json(site.state_dir, file_of(site), document)


def file_of(site: Site) -> Path:
    return site.state_dir / "reports" / f"{site.offering.uuid}.json"


def _closed(month: Month, limits: bool) -> str:
    return f"{month}{LIMITS}" if limits else str(month)


def _names(section: Any) -> frozenset[str]:
    return (
        frozenset(name for name in section if isinstance(name, str))
        if isinstance(section, list)
        else frozenset()
    )


def _moments(section: Any) -> dict[str, datetime]:
    found = {}
    for name, text in section.items() if isinstance(section, dict) else ():
        try:
            moment = datetime.fromisoformat(str(text))
        except ValueError:
            continue
        if moment.tzinfo:
            found[name] = moment
    return found


def _jobs(section: Any) -> dict[str, dict[str, dict[str, int]]]:
    """What is damaged is forgotten."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for month, accounts in section.items() if isinstance(section, dict) else ():
        for account, jobs in accounts.items() if isinstance(accounts, dict) else ():
            if isinstance(jobs, dict) and all(isinstance(seconds, int) for seconds in jobs.values()):
                found.setdefault(str(month), {})[str(account)] = jobs
    return found
