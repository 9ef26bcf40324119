# SPDX-License-Identifier: MIT
"""What was used: whole counts by account, user and component of the cluster, for one billing month.

A count divided by its `scale` is in the units of the cluster's limits. SLURM counts TRES-seconds with scale 60
(limits are in TRES-minutes; memory in MiB).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from agent.core.periods import Month

# Counts by name (`cpu`, `mem`, `gres/gpu`, `gres/gpu:a100`, `billing`).
Counts = Mapping[str, int]


class UsageSource(StrEnum):
    """What a job is charged for: what it asked for, or what it was given (as the limits of SLURM and sreport count)."""

    REQUESTED = "requested"
    ALLOCATED = "allocated"


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """All usage of one month; `zone` is the IANA name of the time zone in which the month begins and ends.

    `as_reference`: only to compare with the reference, which leaves out the month's last second and all runs of a
    requeued job but the last. `last_runs_only`: this alone, to tell the two apart.
    """

    month: Month
    zone: str = "UTC"
    source: UsageSource = UsageSource.REQUESTED
    as_reference: bool = False
    last_runs_only: bool = False


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """One account: `total` is the sum over `users`."""

    total: Counts = field(default_factory=dict)
    users: Mapping[str, Counts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobUse:
    """What one run of a job has counted in a month. `state` and `submitted` as the cluster writes them."""

    id: str
    account: str
    user: str
    state: str
    seconds: int
    counts: Counts = field(default_factory=dict)
    submitted: str = ""

    @property
    def run(self) -> str:
        """Return what tells it from other runs of a requeued job: those were submitted at other times."""
        return f"{self.id} {self.submitted}".rstrip()


def job_of(run: str) -> str:
    """Return the job's id."""
    return run.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Usage:
    """One month of the whole cluster, of accounts that had jobs in it; those gone meanwhile, too.

    `records`: how many the cluster told of. None at all says nothing about any account (docs/reports.md). `live`:
    jobs that had not ended, whose counts still grow.
    """

    query: UsageQuery
    accounts: Mapping[str, AccountUsage] = field(default_factory=dict)
    records: int = 0
    scale: int = 60
    live: tuple[JobUse, ...] = ()


@dataclass(frozen=True, slots=True)
class SettledMonth:
    """Sums of one month by account and user, of jobs that ended before a moment. `records`: how many they were."""

    records: int
    accounts: Mapping[str, Mapping[str, Counts]]


@dataclass(frozen=True, slots=True)
class SettledUsage:
    """What one full count found of the jobs that ended `before` a moment, so that a later count reads only the others.

    Moments are epoch seconds; `before` by the cluster's clock, 0 where nothing is settled. `watched`: fingerprint of
    other jobs of `month` that had begun. `source`: fingerprint of the place and the way it was counted. `size`:
    records of the largest month.
    """

    source: str
    taken: int
    size: int
    before: int = 0
    watched: str = ""
    month: str = ""
    months: Mapping[str, SettledMonth] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """What Waldur holds for one component of a resource in a month; `amount` in its units, None where that is no
    number.
    """

    uuid: str
    resource: str
    component: str
    amount: Decimal | None


@dataclass(frozen=True, slots=True)
class KeyUsageRecord:
    """A key of a resource with the usage that Waldur has of it in `month` (`2024-03`, empty where it has none), in its
    units.
    """

    uuid: str
    resource: str
    client_id: str
    month: str = ""
    usages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserUsageRecord:
    """The share of a user in the usage record `record`."""

    record: str
    username: str
    amount: Decimal | None
