# SPDX-License-Identifier: MIT
"""History: which months are to be loaded, and what of a month's plan is history's to say.

Without `reconcile_stale` only what was used is reported: accounts, components and users of which the cluster names
nothing keep what Waldur has, since an old month may have been purged from the cluster's records. With it they become
zero; but never where the answer names none of the offering's accounts, which may be another cluster's answer.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import TypeVar

from agent.core.account_names import fold
from agent.core.errors import PlanRefused
from agent.core.model import Resource
from agent.core.periods import SKEW, Month, attribution, months_between
from agent.core.usage import Usage
from agent.core.usage_actions import Amounts, ReportUsage, ReportUserUsage
from agent.plan.usage.planning import TAKING, UsagePlan

# Five years and the leap day in them, as the reference has it.
DAYS_AT_MOST = 1825
# SLURM counts seconds from then on.
EPOCH = 1970
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)

Reported = TypeVar("Reported", ReportUsage, ReportUserUsage)


@dataclass(frozen=True, slots=True)
class Span:
    """The days that were asked for, and the months that they touch, oldest first."""

    first: date
    last: date
    months: tuple[Month, ...]
    # What of it is skipped.
    note: str = ""

    @property
    def days(self) -> int:
        return (self.last - self.first).days


@dataclass(frozen=True)
class Choice:
    """Resources of a month."""

    # Those of which Waldur takes usage.
    active: tuple[Resource, ...]
    # Those of which there is something to report, the erred ones included, which Waldur refuses.
    reportable: tuple[Resource, ...]
    # How many accounts the cluster has counted for.
    counted: int
    # Asked for, and named by no resource.
    unknown: tuple[str, ...] = ()


def parse_date(text: str, option: str) -> date:
    """Return the date of an option. Raises PlanRefused, naming the option."""
    try:
        if _DATE.fullmatch(text.strip()):
            return date.fromisoformat(text.strip())
    except ValueError:
        pass
    raise PlanRefused(f"{option} {text!r} is no date: write it as 2024-01-31")


def span(first: date, last: date, now: datetime) -> Span:
    """Return the days and their months. `now` in the site's zone. Raises PlanRefused for days that cannot be loaded."""
    if last < first:
        raise PlanRefused(f"--end-date {last} comes before --start-date {first}: exchange them")
    days = (last - first).days
    if days > DAYS_AT_MOST:
        raise PlanRefused(
            f"from {first} to {last} it is {days} days, and at most {DAYS_AT_MOST} are loaded at once: do it in parts"
        )
    if first.year < EPOCH:
        raise PlanRefused(
            f"--start-date {first} is before the year {EPOCH}, in which no cluster counted usage"
        )
    if not _has_begun(Month.of(first), now):
        raise PlanRefused(f"{Month.of(first)} has not begun: there is no usage of it to load")
    wanted = months_between(first, last)
    begun = tuple(month for month in wanted if _has_begun(month, now))
    if begun == wanted:
        return Span(first, last, begun)
    left = wanted[len(begun)]
    others = " and the months after it have" if len(wanted) - len(begun) > 1 else " has"
    return Span(first, last, begun, f"{left}{others} not begun: what is loaded ends with {begun[-1]}")


def _has_begun(month: Month, now: datetime) -> bool:
    """Return whether a month has begun, also for Waldur, which refuses moments in the future."""
    zone: tzinfo = now.tzinfo or UTC
    return attribution(month, zone) <= now - SKEW


def choose(resources: Iterable[Resource], wanted: Sequence[str]) -> Choice:
    """Return resources of these accounts, or all where `wanted` is empty. Nothing is counted yet."""
    named = [resource for resource in resources if resource.backend_id]
    names = {fold(text) for text in wanted}
    chosen = tuple(r for r in named if not names or fold(r.backend_id) in names)
    known = {fold(r.backend_id) for r in named}
    return Choice(
        active=tuple(r for r in chosen if r.state in TAKING),
        reportable=chosen,
        counted=0,
        unknown=tuple(text for text in dict.fromkeys(wanted) if fold(text) not in known),
    )


def with_usage(choice: Choice, usage: Usage, *, every: bool) -> Choice:
    """Return the choice without resources of whose account the cluster names nothing; `every` keeps these, too."""
    there = {account for r in choice.reportable if (account := fold(r.backend_id)) in usage.accounts}
    reportable = tuple(r for r in choice.reportable if every or fold(r.backend_id) in there)
    return replace(choice, reportable=reportable, counted=len(there))


def is_foreign(resources: Iterable[Resource], usage: Usage, known: Iterable[str]) -> bool:
    """Return whether neither the usage nor the cluster has an account of the offering: it is another cluster's."""
    accounts = {fold(resource.backend_id) for resource in resources if resource.backend_id}
    return accounts.isdisjoint(usage.accounts) and accounts.isdisjoint(map(fold, known))


def without_zeros(plan: UsagePlan) -> UsagePlan:
    """Return the plan with amounts above zero only."""
    totals = _only_used(plan.totals) if plan.totals else None
    shares = tuple(share for each in plan.shares if (share := _only_used(each)))
    return replace(plan, totals=totals, shares=shares)


def _only_used(action: Reported) -> Reported | None:
    names = {name for name, amount in action.after if amount is not None and Decimal(amount) > 0}
    before, after = _named(action.before, names), _named(action.after, names)
    return replace(action, before=before, after=after) if after else None


def _named(amounts: Amounts, names: Container[str]) -> Amounts:
    return tuple((name, amount) for name, amount in amounts if name in names)
