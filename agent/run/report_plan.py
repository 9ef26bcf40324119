# SPDX-License-Identifier: MIT
"""The plan of a report: for each month that is told of, what changes in Waldur.

A month that ends while it is read is dropped: its last figures would stand in the next one. Waldur is told of a
month by a date in it; a server that ignores dates would file it under the month that it has itself, so that it is
told of the present month only, and only while that is the present one for the site as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agent.core.errors import SiteAgentError
from agent.core.model import Component, Snapshot
from agent.core.periods import Month, attribution, last_months
from agent.core.plans import Plan
from agent.core.usage import JobUse
from agent.plan import usage as planner
from agent.plan.decreases import lowered
from agent.plan.usage import UsagePlan
from agent.run import report_explain, report_facts, report_memory
from agent.run.report_facts import MonthPicture, OfferingPicture
from agent.run.report_memory import Memory
from agent.run.sites import Site
from agent.waldur import usages

Clock = Callable[[], datetime]


class MonthEnded(SiteAgentError):
    """The month went by while its usage was read; nothing of it is used."""

    retryable = True


@dataclass(frozen=True)
class PlannedMonth:
    month: Month
    date: datetime
    picture: MonthPicture
    plans: tuple[UsagePlan, ...]
    is_current: bool = True


@dataclass(frozen=True)
class PlannedReport:
    """`months` oldest first, so that the present month has the last word; `memory_months`: those worth remembering."""

    picture: OfferingPicture
    months: tuple[PlannedMonth, ...]
    memory: Memory
    memory_months: tuple[Month, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def snapshot(self) -> Snapshot:
        return self.picture.snapshot

    def plan(self) -> Plan:
        return Plan.of(action for month in self.months for plan in month.plans for action in plan.actions)


def plan(site: Site, clock: Clock | None = None) -> PlannedReport:
    """What a report would tell Waldur now. Changes nothing. Raises SiteAgentError."""
    tell_time = clock or (lambda: datetime.now(site.zone))
    now = tell_time()
    current = Month.of(now)
    memory = report_memory.load(site)
    picture = report_facts.offering(site)
    notes = [f"Waldur's offering has no component {name}: run load-components" for name in picture.missing]
    months = []
    for which in _told_of(site, current, now, notes) if picture.resources and picture.components else ():
        components = _components(picture, memory, which, now, is_current=which == current)
        if components:
            months.append(_of_month(site, picture, which, components, memory, notes))
    if Month.of(tell_time()) != current:
        raise MonthEnded(
            f"{current} ended while its usage was read: nothing is told, the next report does it"
        )
    listed = tuple(replace(month, is_current=month.month == current) for month in months)
    kept = last_months(current, site.reporting_periods)
    return PlannedReport(picture, listed, memory, kept, tuple(dict.fromkeys(notes)))


def _told_of(site: Site, current: Month, now: datetime, notes: list[str]) -> Iterator[Month]:
    wanted = last_months(current, site.reporting_periods)
    if not usages.takes_dates(site.client):
        if len(wanted) > 1:
            notes.append("this Waldur files all usage under its present month: past months are not told of")
        if Month.of(now.astimezone(UTC)) == current:
            yield current
        return
    for month in wanted:
        if attribution(month, site.zone) <= now:
            yield month


def _components(
    picture: OfferingPicture, memory: Memory, month: Month, now: datetime, *, is_current: bool
) -> list[Component]:
    """Of a closed month that Waldur refused: what it takes of a provider, which are components with limits."""
    if is_current or not memory.is_refused(month, now):
        return list(picture.components)
    return [c for c in picture.components if picture.billing_type(c.name) == "limit"]


def _of_month(
    site: Site,
    picture: OfferingPicture,
    which: Month,
    components: Sequence[Component],
    memory: Memory,
    notes: list[str],
) -> PlannedMonth:
    seen = report_facts.month(site, which)
    made = PlannedMonth(which, attribution(which, site.zone), seen, ())
    if not seen.usage.records:
        notes.append(
            f"the cluster names no job in {which}, which says nothing of any account: nothing is told"
        )
        return made
    lacking = report_facts.tracked(site, components, seen.usage)
    notes += [
        f"component {name}: the cluster does not track {tres} (AccountingStorageTRES), so nobody knows its usage"
        for name, tres in lacking.items()
    ]
    rules = report_facts.rules(site, picture, [c for c in components if c.name not in lacking])
    plans = planner.plan_month(picture.resources, seen.usage, seen.ledger, rules)
    return replace(made, plans=tuple(_explained(site, which, plans, memory)))


def _explained(site: Site, month: Month, plans: Sequence[UsagePlan], memory: Memory) -> Iterator[UsagePlan]:
    """The plans, with the jobs that explain why an account has less than Waldur was told before."""
    less = [plan.account for plan in plans if plan.totals and any(lowered(plan.totals))]
    words = report_explain.decreases(site, month, less, memory)
    for plan in plans:
        if plan.totals and plan.account in words:
            yield replace(plan, totals=replace(plan.totals, reason=words[plan.account]))
        else:
            yield plan


def live_jobs(planned: PlannedMonth) -> Sequence[JobUse]:
    """Jobs of the resources' accounts that still count up."""
    accounts = {plan.account for plan in planned.plans}
    return [job for job in planned.picture.usage.live if job.account in accounts]
