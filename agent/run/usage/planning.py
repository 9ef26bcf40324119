# SPDX-License-Identifier: MIT
"""The plan of a report: for each month that is told of, what changes in Waldur.

A month that ends while it is read is dropped: its last figures would stand in the next one. Waldur is told of a
month by a date in it. A server that ignores dates, and one that takes none from our token, files whatever it is told
under the month that it has itself: it is told of the present month only, and only while there is no doubt which one
that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from agent.core.actions import Action
from agent.core.errors import SiteAgentError
from agent.core.model import Component, Snapshot
from agent.core.periods import SKEW, Month, attribution, last_months, surely_in
from agent.core.plans import Plan
from agent.core.usage import JobUse, Usage
from agent.plan.policy.rules import PolicyContext
from agent.plan.usage import planning as planner
from agent.plan.usage.planning import UsagePlan
from agent.run.site import Site
from agent.run.usage import explanation as report_explain
from agent.run.usage import facts as report_facts
from agent.run.usage.facts import MonthPicture, OfferingPicture
from agent.state import reports as report_memory
from agent.state.reports import Memory
from agent.waldur import usages

Clock = Callable[[], datetime]
TURN_S = 1800


class MonthEnded(SiteAgentError):
    """The month went by while its usage was read; nothing of it is used."""

    retryable = True


@dataclass(frozen=True)
class PlannedMonth:
    """`date`: by which Waldur knows the month; None where it takes none, and has its own present one."""

    month: Month
    date: datetime | None
    picture: MonthPicture
    plans: tuple[UsagePlan, ...]
    is_current: bool = True


@dataclass(frozen=True)
class PlannedReport:
    """`months` oldest first, so that the present month has the last word; `memory_months`: those worth remembering.
    `has_gaps`: of a month nothing is known now. `left_alone`: sentences about months that Waldur refused before, for
    who asks; who reads logs has been told.
    """

    picture: OfferingPicture
    months: tuple[PlannedMonth, ...]
    memory: Memory
    memory_months: tuple[Month, ...] = ()
    notes: tuple[str, ...] = ()
    has_gaps: bool = False
    left_alone: tuple[str, ...] = ()

    @property
    def snapshot(self) -> Snapshot:
        return self.picture.snapshot

    @property
    def grounds(self) -> PolicyContext:
        return PolicyContext(has_gaps=self.has_gaps)

    def plan(self) -> Plan:
        return Plan.of(action for month in self.months for plan in month.plans for action in plan.actions)


@dataclass
class _Making:
    """A report while it is planned, as of `now`. `tracked`: TRES of the cluster, once they had to be asked for."""

    site: Site
    picture: OfferingPicture
    memory: Memory
    now: datetime
    notes: list[str] = field(default_factory=list)
    has_gaps: bool = False
    closed: list[Month] = field(default_factory=list)
    tracked: frozenset[str] | None = None

    @property
    def current(self) -> Month:
        return Month.of(self.now)


def plan(
    site: Site, clock: Clock | None = None, is_late: Callable[[], bool] = lambda: False
) -> PlannedReport:
    """What a report would tell Waldur now. Changes nothing. Once it `is_late` no further month is read. Raises
    SiteAgentError.
    """
    tell_time = clock or (lambda: datetime.now(site.zone))
    now = tell_time()
    memory = report_memory.load(site)
    making = _Making(site, report_facts.offering(site), memory, now)
    making.notes += [
        f"Waldur's offering has no component {name}: run load-components" for name in making.picture.missing
    ]
    making.notes += [
        f"resource {resource.name} ({resource.uuid}) has no backend_id: nobody knows its usage"
        for resource in making.picture.nameless
    ]
    is_empty = not (making.picture.resources and making.picture.components)
    months = [] if is_empty else _read(making, list(_told_of(making)), is_late)
    if Month.of(tell_time()) != making.current:
        raise MonthEnded(
            f"{making.current} ended while its usage was read: nothing is told, the next report does it"
        )
    return PlannedReport(
        making.picture,
        tuple(months),
        memory,
        last_months(making.current, site.reporting_periods),
        tuple(dict.fromkeys(making.notes)),
        making.has_gaps,
        tuple(_left_alone(making, month) for month in making.closed),
    )


def _read(
    making: _Making, wanted: Sequence[tuple[Month, datetime | None]], is_late: Callable[[], bool]
) -> list[PlannedMonth]:
    """The months, oldest first. The present one is read first; of the others another one comes next in every half hour,
    so that each has its turn where the time is enough for some of them only.
    """
    turn = int(making.now.timestamp()) // TURN_S % max(1, len(wanted))
    in_turn = [*wanted[turn:], *wanted[:turn]]
    made: dict[Month, PlannedMonth | None] = {}
    for which, date in sorted(in_turn, key=lambda each: each[0] != making.current):
        if made and is_late():
            making.has_gaps = True
            making.notes.append(
                "the cluster answers slowly: some of the past months are left to the next reports; a smaller "
                "reporting_periods asks for fewer"
            )
            break
        made[which] = _of_month(making, which, date)
    return [month for which, _ in wanted if (month := made.get(which)) is not None]


def is_certain(site: Site, month: Month, now: datetime) -> bool:
    """Whether a server that is told no date takes this month for the present one, whatever its clock and zone."""
    return surely_in(month, site.zone, now) and surely_in(month, UTC, now)


def _told_of(making: _Making) -> Iterator[tuple[Month, datetime | None]]:
    """Months with their dates."""
    site, now, current = making.site, making.now, making.current
    wanted = last_months(current, site.reporting_periods)
    takes_dates = usages.takes_dates(site.client)
    if takes_dates and not making.memory.takes_no_dates(now):
        for month in wanted:
            date = attribution(month, site.zone)
            if date <= now - SKEW:
                yield month, date
        return
    if len(wanted) > 1 and not takes_dates:
        making.notes.append(
            "this Waldur files all usage under its present month: past months are not told of"
        )
    making.closed += wanted[:-1] if takes_dates else ()
    if is_certain(site, current, now):
        yield current, None
    else:
        making.has_gaps = True


def _of_month(making: _Making, which: Month, date: datetime | None) -> PlannedMonth | None:
    is_current = which == making.current
    components = making.picture.components
    if not is_current and making.memory.is_refused(which, making.now):
        # What Waldur takes of a provider for a closed month.
        making.closed.append(which)
        components = tuple(c for c in components if making.picture.has_limit(c.name))
        if making.memory.is_refused(which, making.now, limits=True):
            components = ()
    if not components:
        return None
    seen = report_facts.month(making.site, which)
    made = PlannedMonth(which, date, seen, (), is_current)
    if not seen.usage.records:
        # What waits can only be of a month of which Waldur holds something.
        making.has_gaps = making.has_gaps or bool(seen.ledger.records)
        if is_current or seen.ledger.records:
            making.notes.append(
                f"the cluster names no job in {which}, which says nothing of any account: nothing is told"
            )
        return made
    lacking = _untracked(making, components, seen.usage)
    making.notes += [
        f"component {name}: the cluster does not count {tres}, so nobody knows its usage"
        for name, tres in lacking.items()
    ]
    counted = [c for c in components if c.name not in lacking]
    rules = replace(report_facts.rules(making.site, making.picture, counted), with_zeros=is_current)
    plans = planner.plan_month(making.picture.resources, seen.usage, seen.ledger, rules)
    return replace(made, plans=tuple(_explained(making, which, plans)))


def _left_alone(making: _Making, month: Month) -> str:
    until = making.memory.refused_until(month).astimezone(making.site.zone)
    return (
        f"{month}: Waldur does not take all of it from this token any more, and is not asked again before "
        f"{until:%Y-%m-%d %H:%M %Z}. `historical-usage` with a staff token does it; another token is tried at once "
        f"when {report_memory.file_of(making.site)} is removed"
    )


def _untracked(making: _Making, components: Sequence[Component], usage: Usage) -> dict[str, str]:
    """Components that nobody can count. The cluster is asked once in a report, where nobody had any of a TRES."""
    lacking = planner.untracked(components, planner.counted(usage))
    if lacking and making.tracked is None:
        making.tracked = report_facts.all_tracked(making.site)
    return planner.untracked(components, making.tracked) if lacking and making.tracked is not None else {}


def _explained(making: _Making, month: Month, plans: Sequence[UsagePlan]) -> Iterator[UsagePlan]:
    """The plans, with the jobs that explain why an account has less than Waldur was told before."""
    less = [plan.account for plan in plans if any(_is_less(action) for action in plan.actions)]
    words = report_explain.decreases(making.site, month, less, making.memory)
    for plan in plans:
        if plan.account not in words:
            yield plan
        elif plan.totals:
            yield replace(plan, totals=replace(plan.totals, reason=words[plan.account]))
        else:
            shares = (replace(share, reason=words[plan.account]) for share in plan.shares)
            yield replace(plan, shares=tuple(shares))


def _is_less(action: Action) -> bool:
    return any(action.decreases())


def live_jobs(planned: PlannedMonth) -> Sequence[JobUse]:
    """Jobs of the resources' accounts that still count up."""
    accounts = {plan.account for plan in planned.plans}
    return [job for job in planned.picture.usage.live if job.account in accounts]
