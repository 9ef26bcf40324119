# SPDX-License-Identifier: MIT
"""What was used: whole counts by account, user and component of the cluster, for one billing month.

A count divided by its `scale` is in the units of the cluster's limits. SLURM counts TRES-seconds with scale 60
(limits are in TRES-minutes; memory in MiB).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from agent.core.components import Component
from agent.core.components import UsageSource as UsageSource
from agent.core.errors import BackendError
from agent.core.periods import Month
from agent.core.units import Shares, reported_amount

# Counts by name (`cpu`, `mem`, `gres/gpu`, `gres/gpu:a100`, `billing`).
Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """All usage of one month."""

    month: Month
    # The IANA name of the time zone in which the month begins and ends.
    zone: str = "UTC"
    source: UsageSource = UsageSource.REQUESTED
    # Only to compare with the reference, which omits the month's last second and all runs of a requeued job but the
    # last.
    as_reference: bool = False
    # This alone, to distinguish the two.
    last_runs_only: bool = False
    # What Waldur's resources are called, in its spelling, for a backend that reads single accounts only.
    accounts: tuple[str, ...] = ()
    # The `backend_id` of the offering in Waldur, for a plugin of the reference.
    offering_backend_id: str = ""


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """One account."""

    # The sum over the users.
    total: Counts = field(default_factory=dict)
    users: Mapping[str, Counts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobUse:
    """What one run of a job has counted in a month."""

    id: str
    account: str
    user: str
    # As the cluster writes it, like the time of submission.
    state: str
    seconds: int
    counts: Counts = field(default_factory=dict)
    submitted: str = ""

    @property
    def run(self) -> str:
        """Return what distinguishes it from other runs of a requeued job: those were submitted at other times."""
        return f"{self.id} {self.submitted}".rstrip()


def job_of(run: str) -> str:
    """Return the job's id."""
    return run.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Usage:
    """One month of the whole cluster, of accounts that had jobs in it; those gone since, too."""

    query: UsageQuery
    accounts: Mapping[str, AccountUsage] = field(default_factory=dict)
    # How many the cluster reported. None at all says nothing about any account (docs/reports.md).
    records: int = 0
    scale: int = 60
    # Jobs that had not ended, whose counts still grow.
    live: tuple[JobUse, ...] = ()
    # It is counted by component, in Waldur's units, by a plugin of the reference. What that does not name is unknown;
    # what SLURM and MOAB do not name was not used.
    by_component: bool = False
    # Less than before is no mistake.
    may_fall: bool = False
    # Why the usage of an account could not be read; it may be read later.
    unknown: Mapping[str, str] = field(default_factory=dict)

    def amount(self, component: Component, counts: Counts, shares: Shares | None = None) -> Decimal | None:
        """Return what was used of a component, in Waldur's units with two decimals; None where that is unknown.

        `shares`: of TRES that other components name as well.
        """
        if not self.by_component:
            return reported_amount(component, counts, self.scale, shares)
        if component.name not in counts:
            return None
        return reported_amount(
            replace(component, unit_factor=1, unit_factor_reporting=None, targets={}), counts, self.scale
        )


def require_whole(usage: Usage) -> Usage:
    """Return what a backend has counted. Raises BackendError where something of it is no whole number, or below zero:
    an answer that is broken anywhere is none.
    """
    month = usage.query.month
    if type(usage.scale) is not int or usage.scale < 1:
        raise _broken(f"counted in parts of 1/{usage.scale!r} of a unit of its limits", month)
    for account, used in usage.accounts.items():
        require_counts(used.total, f"account {account}", month)
        for user, counts in used.users.items():
            require_counts(counts, f"{user} in account {account}", month)
    return usage


def require_counts(counts: Counts, whose: str, month: Month) -> None:
    """Raise BackendError where one of the counts is no whole number, or below zero."""
    for name, count in counts.items():
        if type(count) is not int or count < 0:  # a bool is none either
            raise _broken(f"counted {name}={count!r} of {whose}", month)


def _broken(what: str, month: Month) -> BackendError:
    return BackendError(
        f"the backend {what} in {month}: counts are whole numbers, zero or more, and so is what a unit is divided by. "
        "Nothing of that month is reported; tell the author of the backend"
    )


@dataclass(frozen=True, slots=True)
class FinalisedMonth:
    """Sums of one month by account and user, of jobs that ended before a moment."""

    # How many jobs they were.
    records: int
    accounts: Mapping[str, Mapping[str, Counts]]


@dataclass(frozen=True, slots=True)
class FinalisedUsage:
    """What one full count found of the jobs that ended before a moment, so that a later count reads only the others.
    Moments are epoch seconds.
    """

    # Fingerprint of the place and the way it was counted.
    source: str
    taken: int
    # Records of the largest month.
    size: int
    # The moment by the cluster's clock, 0 where nothing is finalised.
    before: int = 0
    # Fingerprint of other jobs that had begun, of the month that is named next.
    watched: str = ""
    month: str = ""
    months: Mapping[str, FinalisedMonth] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """What Waldur holds for one component of a resource in a month."""

    uuid: str
    resource: str
    component: str
    # In the component's units, None where that is no number.
    amount: Decimal | None


@dataclass(frozen=True, slots=True)
class KeyUsageRecord:
    """A key of a resource with the usage that Waldur has of it in one month, in its units."""

    uuid: str
    resource: str
    client_id: str
    # `2024-03`, empty where it has none.
    month: str = ""
    usages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserUsageRecord:
    """The share of a user in a usage record."""

    record: str
    username: str
    amount: Decimal | None
