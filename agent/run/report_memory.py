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
from agent.run import state_files
from agent.run.sites import Site
from agent.run.state_files import Unreadable

# A token may get more rights: then Waldur takes what it refused before.
REFUSED_FOR = timedelta(days=1)
JOBS_AT_MOST = 20_000


@dataclass
class Memory:
    """`refused`: until when a month is not tried again. `live`: seconds by account and job, by month."""

    refused: dict[str, datetime] = field(default_factory=dict)
    live: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)

    def is_refused(self, month: Month, now: datetime) -> bool:
        until = self.refused.get(str(month))
        return until is not None and now < until

    def refuse(self, month: Month, now: datetime) -> bool:
        """True where that is news."""
        is_news = str(month) not in self.refused
        self.refused[str(month)] = now + REFUSED_FOR
        return is_news

    def note_live(self, month: Month, jobs: Sequence[JobUse]) -> None:
        found: dict[str, dict[str, int]] = {}
        for job in jobs[:JOBS_AT_MOST]:
            found.setdefault(job.account, {})[job.id] = job.seconds
        self.live[str(month)] = found

    def jobs_of(self, month: Month, account: str) -> Mapping[str, int]:
        """Jobs that ran when the account was told of last, with what they had counted then."""
        return self.live.get(str(month), {}).get(account, {})

    def keep(self, months: Iterable[Month]) -> None:
        """Forget all others."""
        names = {str(month) for month in months}
        self.refused = {name: until for name, until in self.refused.items() if name in names}
        self.live = {name: jobs for name, jobs in self.live.items() if name in names}


def load(site: Site) -> Memory:
    try:
        document = state_files.read_json(_path(site)) or {}
    except Unreadable:
        return Memory()
    return Memory(_moments(document.get("refused")), _jobs(document.get("live")))


def save(site: Site, memory: Memory) -> None:
    refused = {name: until.isoformat() for name, until in memory.refused.items()}
    state_files.write_json(site.state_dir, _path(site), {"refused": refused, "live": memory.live})


def _path(site: Site) -> Path:
    return site.state_dir / "reports" / f"{site.offering.uuid}.json"


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
                found.setdefault(month, {})[account] = jobs
    return found
