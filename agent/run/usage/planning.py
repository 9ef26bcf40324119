# SPDX-License-Identifier: MIT
"""The plan of a report: for each month that is told of, what changes in Waldur.

A month that ends while it is read is dropped: its last figures would stand in the next one. Waldur is told of a
month by a date in it. A server that ignores dates, and one that takes none from our token, files whatever it is told
under the month that it has itself: it is told of the present month only, and only while there is no doubt which one
that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

from agent.core.actions import Action
from agent.core.errors import SiteAgentError
from agent.core.model import Snapshot
from agent.core.periods import SKEW, Month, attribution, last_months, surely_in
from agent.core.usage import JobUse
from agent.plan.policy.rules import PolicyContext
from agent.plan.usage import planning as planner
from agent.plan.usage.planning import UsagePlan, UsageRules
from agent.run.site import Site
from agent.run.usage import explanation as report_explain
from agent.run.usage import facts as report_facts
from agent.run.usage.facts import MonthPicture, OfferingPicture
from agent.state import report_state
from agent.state.report_state import ReportState
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
    memory: ReportState
    memory_months: tuple[Month, ...] = ()
    notes: tuple[str, ...] = ()
    has_gaps: bool = False
    left_alone: tuple[str, ...] = ()
    is_whole: bool = True

    @property
    def snapshot(self) -> Snapshot:
        return self.picture.snapshot

    @property
    def context(self) -> PolicyContext:
        return PolicyContext(has_gaps=self.has_gaps, sees_nothing=not self.picture.resources)

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        actions = (action for month in self.months for plan in month.plans for action in plan.actions)
        return tuple(dict.fromkeys(actions))


@dataclass(frozen=True)
class MonthFacts:
    """A month as the cluster counts it and as Waldur has it. `rules` None: nothing is told of it."""

    month: Month
    date: datetime | None
    picture: MonthPicture
    rules: UsageRules | None
    is_current: bool


@dataclass(frozen=True)
class ReportFacts:
    """What a report knows. `explanations`: why an account has less than Waldur was told, by month and account, once
    somebody has looked.
    """

    picture: OfferingPicture
    months: tuple[MonthFacts, ...]
    memory: ReportState
    memory_months: tuple[Month, ...]
    notes: tuple[str, ...]
    has_gaps: bool
    left_alone: tuple[str, ...]
    explanations: Mapping[tuple[Month, str], str] | None = None


@dataclass
class _Looking:
    """A report while it is observed, as of `now`. `tracked`: TRES of the cluster, once they had to be asked for."""

    site: Site
    picture: OfferingPicture
    memory: ReportState
    now: datetime
    notes: list[str] = field(default_factory=list)
    has_gaps: bool = False
    closed: list[Month] = field(default_factory=list)
    tracked: frozenset[str] | None = None

    @property
    def current(self) -> Month:
        return Month.of(self.now)


def plan(facts: ReportFacts) -> PlannedReport:
    """What a report tells Waldur. Pure."""
    return PlannedReport(
        facts.picture,
        tuple(
            PlannedMonth(
                each.month, each.date, each.picture, tuple(_month_plans(facts, each)), each.is_current
            )
            for each in facts.months
        ),
        facts.memory,
        facts.memory_months,
        facts.notes,
        facts.has_gaps,
        facts.left_alone,
    )


def _month_plans(facts: ReportFacts, month: MonthFacts) -> Iterator[UsagePlan]:
    """The plans of a month, with the jobs that explain why an account has less than Waldur was told before."""
    if month.rules is None:
        return
    words = facts.explanations or {}
    for each in planner.plan_month(
        facts.picture.resources, month.picture.usage, month.picture.ledger, month.rules
    ):
        reason = words.get((month.month, each.account))
        if reason is None:
            yield each
        elif each.totals:
            yield replace(each, totals=replace(each.totals, reason=reason))
        else:
            yield replace(each, shares=tuple(replace(share, reason=reason) for share in each.shares))


def observe(site: Site, clock: Clock, is_late: Callable[[], bool] = lambda: False) -> ReportFacts:
    """Usage and what Waldur holds of it. Once it `is_late` no further month is read. Raises SiteAgentError."""
    now = clock()
    memory = report_state.load(site.state_dir, site.offering.uuid)
    looking = _Looking(site, report_facts.offering(site), memory, now)
    looking.notes += [
        f"Waldur's offering has no component {name}: run load-components" for name in looking.picture.missing
    ]
    looking.notes += [
        f"resource {resource.name} ({resource.uuid}) has no backend_id: nobody knows its usage"
        for resource in looking.picture.nameless
    ]
    is_empty = not (looking.picture.resources and looking.picture.components)
    months = [] if is_empty else _read(looking, list(_told_of(looking)), is_late)
    if Month.of(clock()) != looking.current:
        raise MonthEnded(
            f"{looking.current} ended while its usage was read: nothing is told, the next report does it"
        )
    return ReportFacts(
        looking.picture,
        tuple(months),
        memory,
        last_months(looking.current, site.reporting_periods),
        tuple(dict.fromkeys(looking.notes)),
        looking.has_gaps,
        tuple(_left_alone(looking, month) for month in looking.closed),
    )


def refine(site: Site, facts: ReportFacts, plan: PlannedReport) -> ReportFacts | None:
    """The facts with the jobs that explain whatever gets less, asked for once."""
    if facts.explanations is not None:
        return None
    found: dict[tuple[Month, str], str] = {}
    for month in plan.months:
        less = [each.account for each in month.plans if not all(action.is_routine for action in each.actions)]
        words = report_explain.decreases(site, month.month, less, facts.memory)
        found |= {(month.month, account): sentence for account, sentence in words.items()}
    return replace(facts, explanations=found) if found else None


def _read(
    looking: _Looking, wanted: Sequence[tuple[Month, datetime | None]], is_late: Callable[[], bool]
) -> list[MonthFacts]:
    """The months, oldest first. The present one is read first; of the others another one comes next in every half hour,
    so that each has its turn where the time is enough for some of them only.
    """
    turn = int(looking.now.timestamp()) // TURN_S % max(1, len(wanted))
    in_turn = [*wanted[turn:], *wanted[:turn]]
    made: dict[Month, MonthFacts | None] = {}
    for which, date in sorted(in_turn, key=lambda each: each[0] != looking.current):
        if made and is_late():
            looking.has_gaps = True
            looking.notes.append(
                "the cluster answers slowly: some of the past months are left to the next reports; a smaller "
                "reporting_periods asks for fewer"
            )
            break
        made[which] = _of_month(looking, which, date)
    return [month for which, _ in wanted if (month := made.get(which)) is not None]


def is_certain(site: Site, month: Month, now: datetime) -> bool:
    """Whether a server that is told no date takes this month for the present one, whatever its clock and zone."""
    return surely_in(month, site.zone, now) and surely_in(month, UTC, now)


def _told_of(looking: _Looking) -> Iterator[tuple[Month, datetime | None]]:
    """Months with their dates."""
    site, now, current = looking.site, looking.now, looking.current
    wanted = last_months(current, site.reporting_periods)
    takes_dates = usages.takes_dates(site.client)
    if takes_dates and not looking.memory.takes_no_dates(now):
        for month in wanted:
            date = attribution(month, site.zone)
            if date <= now - SKEW:
                yield month, date
        return
    if len(wanted) > 1 and not takes_dates:
        looking.notes.append(
            "this Waldur files all usage under its present month: past months are not told of"
        )
    looking.closed += wanted[:-1] if takes_dates else ()
    if is_certain(site, current, now):
        yield current, None
    else:
        looking.has_gaps = True


def _of_month(looking: _Looking, which: Month, date: datetime | None) -> MonthFacts | None:
    is_current = which == looking.current
    components = looking.picture.components
    if not is_current and looking.memory.is_refused(which, looking.now):
        # What Waldur takes of a provider for a closed month.
        looking.closed.append(which)
        components = tuple(c for c in components if looking.picture.has_limit(c.name))
        if looking.memory.is_refused(which, looking.now, limits=True):
            components = ()
    if not components:
        return None
    seen = report_facts.month(looking.site, which)
    if not seen.usage.records:
        # What waits can only be of a month of which Waldur holds something.
        looking.has_gaps = looking.has_gaps or bool(seen.ledger.records)
        if is_current or seen.ledger.records:
            looking.notes.append(
                f"the cluster names no job in {which}, which says nothing of any account: nothing is told"
            )
        return MonthFacts(which, date, seen, None, is_current)
    lacking = planner.untracked(components, planner.counted(seen.usage))
    if lacking:
        # The cluster is asked once in a report, where nobody had any of a TRES.
        if looking.tracked is None:
            looking.tracked = report_facts.all_tracked(looking.site)
        lacking = planner.untracked(components, looking.tracked)
    looking.notes += [
        f"component {name}: the cluster does not count {tres}, so nobody knows its usage"
        for name, tres in lacking.items()
    ]
    counted = [c for c in components if c.name not in lacking]
    rules = report_facts.rules(looking.site, looking.picture, counted)
    return MonthFacts(which, date, seen, replace(rules, with_zeros=is_current), is_current)


def _left_alone(looking: _Looking, month: Month) -> str:
    until = looking.memory.refused_until(month).astimezone(looking.site.zone)
    return (
        f"{month}: Waldur does not take all of it from this token any more, and is not asked again before "
        f"{until:%Y-%m-%d %H:%M %Z}. `historical-usage` with a staff token does it; another token is tried at once "
        f"after `forget refused-months --offering {looking.site.offering.uuid}`"
    )


def live_jobs(planned: PlannedMonth) -> Sequence[JobUse]:
    """Jobs of the resources' accounts that still count up."""
    accounts = {plan.account for plan in planned.plans}
    return [job for job in planned.picture.usage.live if job.account in accounts]
