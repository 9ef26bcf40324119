# SPDX-License-Identifier: MIT
"""Observe and plan a report: for each month that is submitted, the changes in Waldur.

A month that ends while it is read is dropped: its last figures would be filed under the next one. Usage of a month is
sent with a date in it. A server that ignores dates, and one that takes none from our token, files whatever it gets
under its own present month: it gets usage of the present month only, and only while it is certain which month that is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

from agent.core.actions import Action
from agent.core.errors import PluginFailed, SiteAgentError
from agent.core.model import Snapshot
from agent.core.periods import SKEW, Month, attribution, last_months, surely_in
from agent.core.printable import shortlist
from agent.core.usage import FinalisedUsage, JobUse
from agent.plan.policy.rules import PolicyContext
from agent.plan.usage import planning as planner
from agent.plan.usage.planning import UsagePlan, UsageRules
from agent.run.site import Site
from agent.run.usage import explanation as report_explain
from agent.run.usage import facts as report_facts
from agent.run.usage.facts import ObservedMonth, ObservedOffering
from agent.state import finalised_usage, report_state
from agent.state.report_state import ReportState
from agent.waldur import usages
from backends.base import UsageCount, UsageCounter

Clock = Callable[[], datetime]
# A month with the date that is sent with its usage, None where none is.
DatedMonth = tuple[Month, datetime | None]
TURN_S = 1800
# An offering of so many resources may have a month that is too large to read in full each time.
LARGE_OFFERING = 500
NAMED_AT_MOST = 3


class MonthEnded(SiteAgentError):
    """The month ended while its usage was read; nothing of it is submitted."""

    retryable = True


@dataclass(frozen=True)
class PlannedMonth:
    """One month of a report."""

    month: Month
    # Sent with the usage; None where Waldur takes none, and files it under its own present month.
    date: datetime | None
    observed: ObservedMonth
    plans: tuple[UsagePlan, ...]
    is_current: bool = True


@dataclass(frozen=True)
class PlannedReport:
    """A report with its plans."""

    observed: ObservedOffering
    # Oldest first, so that the present month comes last.
    months: tuple[PlannedMonth, ...]
    state: ReportState
    # Those that are remembered.
    state_months: tuple[Month, ...] = ()
    notes: tuple[str, ...] = ()
    # A month is unknown now.
    has_gaps: bool = False
    # Sentences about months that Waldur refused before, for `--json`; the log has them already.
    left_alone: tuple[str, ...] = ()
    is_whole: bool = True
    # What the next report needs of the count, None where it has it.
    finalised: FinalisedUsage | None = None

    @property
    def snapshot(self) -> Snapshot:
        return self.observed.snapshot

    @property
    def context(self) -> PolicyContext:
        return PolicyContext(has_gaps=self.has_gaps, waldur_is_empty=not self.observed.resources)

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        actions = (action for month in self.months for plan in month.plans for action in plan.actions)
        return tuple(dict.fromkeys(actions))


@dataclass(frozen=True)
class MonthFacts:
    """A month as the cluster counts it and as Waldur has it."""

    month: Month
    date: datetime | None
    observed: ObservedMonth
    # None: nothing of it is submitted.
    rules: UsageRules | None
    is_current: bool


@dataclass(frozen=True)
class ReportFacts:
    """What was read for a report."""

    observed: ObservedOffering
    months: tuple[MonthFacts, ...]
    state: ReportState
    state_months: tuple[Month, ...]
    notes: tuple[str, ...]
    has_gaps: bool
    left_alone: tuple[str, ...]
    # Why an account has less usage than Waldur, by month and account; None before they were looked for.
    explanations: Mapping[tuple[Month, str], str] | None = None
    finalised: FinalisedUsage | None = None


def plan(facts: ReportFacts) -> PlannedReport:
    """Return the usage to submit, with the jobs that explain why an account has less than Waldur. Pure."""
    words = facts.explanations or {}
    months = []
    for month in facts.months:
        plans: list[UsagePlan] = []
        usage, ledger = month.observed.usage, month.observed.ledger
        found = (
            planner.plan_month(facts.observed.resources, usage, ledger, month.rules) if month.rules else ()
        )
        for each in found:
            reason = words.get((month.month, each.account))
            if reason is None:
                plans.append(each)
            elif each.totals:
                plans.append(replace(each, totals=replace(each.totals, reason=reason)))
            else:
                shares = tuple(replace(share, reason=reason) for share in each.shares)
                plans.append(replace(each, shares=shares))
        months.append(PlannedMonth(month.month, month.date, month.observed, tuple(plans), month.is_current))
    omitted = [
        f"{plan.omitted}; omitted, as omit_anomalous_usage_components says"
        for month in months
        for plan in month.plans
        if plan.omitted
    ]
    return PlannedReport(
        facts.observed,
        tuple(months),
        facts.state,
        facts.state_months,
        (*facts.notes, *omitted),
        facts.has_gaps,
        facts.left_alone,
        finalised=facts.finalised,
    )


def observe(site: Site, clock: Clock, is_late: Callable[[], bool] = lambda: False) -> ReportFacts:
    """Read usage and what Waldur has of it. Once it `is_late` no further month is read. Raises SiteAgentError."""
    observation = _Observation(site, clock())
    months = observation.read(is_late)
    current = observation.current
    if Month.of(clock()) != current:
        raise MonthEnded(
            f"{current} ended while its usage was read: nothing is submitted, the next report does it"
        )
    return ReportFacts(
        observation.observed,
        tuple(months),
        observation.state,
        last_months(current, site.reporting_periods),
        tuple(dict.fromkeys(observation.notes)),
        observation.has_gaps,
        tuple(observation.left_alone),
        finalised=observation.new_finalised,
    )


def observe_endings(
    site: Site, now: datetime, observed: ObservedOffering, months: Sequence[DatedMonth]
) -> ReportFacts:
    """Read what resources that end have used in these months, the newest first. Raises SiteAgentError."""
    observation = _Observation(site, now, observed)
    # What was refused before is tried once more: there is no later report that could.
    observation.state = replace(observation.state, refused={})
    only = [resource.uuid for resource in observed.resources]
    read = [observation.month(which, date, only) for which, date in months]
    # Nothing and a zero are the same in the end.
    found = [
        replace(month, rules=replace(month.rules, with_zeros=False)) if month.rules else month
        for month in reversed(read)
        if month is not None
    ]
    return ReportFacts(observed, tuple(found), observation.state, (), (), observation.has_gaps, ())


def refine(site: Site, facts: ReportFacts, plan: PlannedReport) -> ReportFacts | None:
    """Return the facts with the jobs that explain every decrease; None when they were asked for."""
    if facts.explanations is not None:
        return None
    found: dict[tuple[Month, str], str] = {}
    for month in plan.months:
        if month.observed.usage.may_fall:
            continue
        less = [each.account for each in month.plans if not all(action.is_routine for action in each.actions)]
        words = report_explain.decreases(site, month.month, less, facts.state)
        found |= {(month.month, account): sentence for account, sentence in words.items()}
    return replace(facts, explanations=found) if found else None


def is_certain(site: Site, month: Month, now: datetime) -> bool:
    """Return whether a server that gets no date takes this month for the present one, whatever its clock and zone."""
    return surely_in(month, site.zone, now) and surely_in(month, UTC, now)


class _Observation:
    """The reading of one report, as of `now`. Raises SiteAgentError where the offering cannot be read."""

    def __init__(self, site: Site, now: datetime, observed: ObservedOffering | None = None) -> None:
        self.state = report_state.load(site.state_dir, site.offering.uuid)
        self.observed = observed or report_facts.offering(site)
        self.current = Month.of(now)
        self.has_gaps = False
        self.left_alone: list[str] = []
        self.notes = [
            f"Waldur's offering has no component {name}: run load-components"
            for name in self.observed.missing
        ]
        self.notes += [
            f"resource {resource.name} ({resource.uuid}) has no backend_id: its usage is unknown"
            for resource in self.observed.nameless
        ]
        self._site = site
        self._now = now
        self._kept: FinalisedUsage | None = None
        self._count: UsageCount | None = None
        if isinstance(site.backend, UsageCounter):
            self._kept = finalised_usage.load(site.state_dir, site.offering.uuid)
            is_large = len(self.observed.resources) >= LARGE_OFFERING
            self._count = site.backend.count(self._kept, now, may_be_large=is_large)
        # TRES of the cluster, once they had to be read.
        self._tracked: frozenset[str] | None = None

    @property
    def new_finalised(self) -> FinalisedUsage | None:
        """Return what the count leaves for the next report; None where that has not changed."""
        finalised = self._count.finalised if self._count else None
        return None if finalised is self._kept else finalised

    def read(self, is_late: Callable[[], bool]) -> list[MonthFacts]:
        """Return the months, oldest first. The present one is read first; of the others another one comes next in every
        half hour, so that each has its turn where the time is enough for some of them only.
        """
        if not (self.observed.resources and self.observed.components):
            return []
        wanted = self._months()
        turn = int(self._now.timestamp()) // TURN_S % max(1, len(wanted))
        in_turn = [*wanted[turn:], *wanted[:turn]]
        made: dict[Month, MonthFacts | None] = {}
        for which, date in sorted(in_turn, key=lambda each: each[0] != self.current):
            if made and is_late():
                self.has_gaps = True
                self.notes.append(
                    "the cluster answers slowly: some of the past months are left to the next reports; a smaller "
                    "reporting_periods asks for fewer"
                )
                break
            try:
                made[which] = self.month(which, date)
            except PluginFailed as error:
                if which == self.current:
                    raise
                # It may not know how to report past months, and it does report the present one.
                self.has_gaps = True
                self.notes.append(f"{which} is unknown, and nothing of it is submitted: {error}")
        return [month for which, _ in wanted if (month := made.get(which)) is not None]

    def _months(self) -> list[DatedMonth]:
        """Return the months to submit, with their dates."""
        site, now = self._site, self._now
        wanted = last_months(self.current, site.reporting_periods)
        takes_dates = usages.takes_dates(site.client)
        if takes_dates and not self.state.takes_no_dates(now):
            dated = [(month, attribution(month, site.zone)) for month in wanted]
            return [(month, date) for month, date in dated if date <= now - SKEW]
        if takes_dates:
            self._leave_alone(wanted[:-1])
        elif len(wanted) > 1:
            self.notes.append(
                "this Waldur files all usage under its present month: no past months are submitted"
            )
        if is_certain(site, self.current, now):
            return [(self.current, None)]
        self.has_gaps = True
        return []

    def month(
        self, which: Month, date: datetime | None, only: Collection[str] = report_facts.ALL
    ) -> MonthFacts | None:
        """Read a month, of all resources or `only` some; None where Waldur takes nothing of it."""
        is_current = which == self.current
        components = self.observed.components
        if not is_current and self.state.is_refused(which, self._now):
            # Of a closed month Waldur takes components with limits from a provider.
            self._leave_alone([which])
            components = tuple(c for c in components if self.observed.has_limit(c.name))
            if self.state.is_refused(which, self._now, limits=True):
                components = ()
        if not components:
            return None
        seen = report_facts.month(self._site, which, self.observed, count=self._count, only=only)
        if not seen.usage.records:
            # A held plan can only be about a month of which Waldur has something.
            self.has_gaps = self.has_gaps or bool(seen.ledger.records)
            if is_current or seen.ledger.records:
                silent = (
                    "the plugin names no usage" if seen.usage.by_component else "the cluster names no job"
                )
                failed = [f"{account}: {reason}" for account, reason in seen.usage.unknown.items()]
                self.notes.append(
                    f"{silent} in {which}: where that is a fault, it is not zero usage, so none is submitted"
                    f"{f' ({shortlist(failed, NAMED_AT_MOST)})' if failed else ''}"
                )
            return MonthFacts(which, date, seen, None, is_current)
        lacking = planner.untracked(components, [seen.usage])
        if lacking:
            # The cluster is asked once in a report, where no job had any of a TRES.
            if self._tracked is None:
                self._tracked = report_facts.all_tracked(self._site)
            lacking = planner.untracked(components, [seen.usage], self._tracked)
        self.notes += [f"component {note}" for note in report_facts.notes_of_untracked(lacking)]
        counted = [c for c in components if c.name not in lacking]
        rules = report_facts.rules(self._site, self.observed, counted)
        return MonthFacts(which, date, seen, replace(rules, with_zeros=is_current), is_current)

    def _leave_alone(self, months: Sequence[Month]) -> None:
        for month in months:
            until = self.state.refused_until(month).astimezone(self._site.zone)
            self.left_alone.append(
                f"{month}: Waldur does not take all of it from this token any more, and is not asked again before "
                f"{until:%Y-%m-%d %H:%M %Z}. `historical-usage` with a staff token does it; another token is tried at "
                f"once after `forget refused-months --offering {self._site.offering.uuid}`"
            )


def live_jobs(planned: PlannedMonth) -> Sequence[JobUse]:
    """Return the jobs of the resources' accounts that still count up."""
    accounts = {plan.account for plan in planned.plans}
    return [job for job in planned.observed.usage.live if job.account in accounts]
