# SPDX-License-Identifier: MIT
"""A cluster in memory that knows jobs one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.core.account_names import fold
from agent.core.periods import Month
from agent.core.usage import JobUse, Usage, UsageQuery
from backends.slurm.schema import SlurmSettings
from backends.testing.memory import MemoryBackend


@dataclass(frozen=True, slots=True)
class Job:
    """What a run of a job counts in one month, in TRES-seconds. `live`: it has not ended."""

    id: str
    account: str
    user: str
    month: Month
    counts: Mapping[str, int]
    seconds: int
    live: bool = False
    submitted: str = ""

    def use(self) -> JobUse:
        state = "RUNNING" if self.live else "COMPLETED"
        return JobUse(self.id, self.account, self.user, state, self.seconds, self.counts, self.submitted)


class JobBackend(MemoryBackend):
    def __init__(self, settings: SlurmSettings, jobs: Sequence[Job] = ()) -> None:
        super().__init__(settings)
        self.jobs = list(jobs)

    def usage(self, query: UsageQuery) -> Usage:
        """As the cluster in memory counts it, with the jobs behind the figures."""
        jobs = [job for job in self.jobs if job.month == query.month]
        users: dict[str, dict[str, dict[str, int]]] = {}
        for job in jobs:
            counts = users.setdefault(fold(job.account), {}).setdefault(fold(job.user), {})
            counts.update({name: counts.get(name, 0) + amount for name, amount in job.counts.items()})
        self.memory.counted[str(query.month)] = {**users}
        counted = super().usage(query)
        return Usage(query, counted.accounts, len(jobs), live=tuple(job.use() for job in jobs if job.live))

    def job_uses(self, query: UsageQuery, ids: Sequence[str]) -> Sequence[JobUse]:
        self.must_work("job_uses")
        self.executed["read"] += 1
        return [job.use() for job in self.jobs if job.month == query.month and job.id in ids]
