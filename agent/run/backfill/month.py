# SPDX-License-Identifier: MIT
"""Load one past month: compare what the cluster counts for it now with what Waldur has, and submit the difference.

As a report of that month, with other rules: only what was used is submitted unless `reconcile_stale` is set
(`plan.usage.history`), and every resource whose usage could not be submitted is named. A figure that would get lower
is held unless an option allows it: a cluster that has purged a part of a month counts less than it did. A month of
which the cluster has no record is not done. Safe to repeat: what Waldur has is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from agent.config.model import Mode
from agent.core.account_names import fold
from agent.core.actions import only
from agent.core.errors import SiteAgentError
from agent.core.model import Part
from agent.core.periods import Month, attribution
from agent.core.policy import UsageDecreases
from agent.core.printable import shortlist
from agent.core.usage_actions import ReportUserUsage, UsageAction
from agent.plan.policy.gate import Decision
from agent.plan.usage import history as planner
from agent.plan.usage import planning as usage_planner
from agent.plan.usage.history import Choice
from agent.plan.usage.planning import TAKING
from agent.run import engine
from agent.run.backfill.results import Ending, Line, Mark, MonthOutcome
from agent.run.backfill.staff import error_text
from agent.run.engine import Work
from agent.run.gate import Pass
from agent.run.results import PassReport, Result
from agent.run.site import Site, effort_of
from agent.run.usage import facts as report_facts
from agent.run.usage.facts import ObservedMonth, ObservedOffering
from agent.run.usage.planning import PlannedMonth, PlannedReport
from agent.run.usage.submission import Submission
from agent.state.report_state import ReportState

MODE = Mode.REPORT
CAUSE = "historical-usage"
NAMED_AT_MOST = 10
HOW_TO_LOWER = "--allow-decreases sends the smaller figures"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How every month of a run is loaded. Sent in messages, so it holds no secret."""

    # These resources only, by backend id.
    accounts: tuple[str, ...] = ()
    with_users: bool = True
    reconcile_stale: bool = False
    dry_run: bool = False
    staff_check: bool = True
    # Lower figures are submitted too, as they are when stale ones are reconciled.
    allow_decreases: bool = False

    @property
    def may_lower(self) -> bool:
        return self.allow_decreases or self.reconcile_stale

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "accounts": list(self.accounts)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LoadOptions:
        """Read what `as_json` wrote. Raises TypeError for keys that this version does not know."""
        return cls(**{**document, "accounts": tuple(document.get("accounts", ()))})


def load_month(
    site: Site,
    month: Month,
    options: LoadOptions,
    *,
    interrupted: Callable[[], bool] = lambda: False,
    observe: Callable[[], ObservedOffering] | None = None,
) -> MonthOutcome:
    """Load a month. Raises no SiteAgentError: errors are in the outcome. When `interrupted`, no new portion is begun.

    `observe` returns what does not depend on the month, for callers that keep it from month to month.
    """
    run = MonthRun(site, month, options)
    with effort_of(site) as effort:
        try:
            observed = observe() if observe else report_facts.offering(site, with_users=options.with_users)
            run.load(observed, interrupted)
        except SiteAgentError as error:
            if error.retryable:
                run.retry = error
            else:
                run.fail(error_text(error))
    return MonthOutcome(
        month=str(month),
        ending=run.ending,
        resources=run.resources,
        submitted=len(run.submitted),
        lowered=run.lowered,
        skipped=run.skipped,
        held=tuple(run.held),
        failures=tuple(run.failures),
        lines=tuple(run.lines),
        commands=effort.commands.total(),
        requests=effort.requests.total(),
        seconds=round(effort.seconds, 3),
        error=run.retry,
    )


@dataclass
class MonthRun:
    """One month while it is loaded, with the lines and counts of its outcome."""

    site: Site
    month: Month
    options: LoadOptions
    lines: list[Line] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    resources: int = 0
    # Uuids of resources whose usage was sent.
    submitted: set[str] = field(default_factory=set)
    lowered: int = 0
    skipped: int = 0
    held: list[str] = field(default_factory=list)
    # The cluster has no record of the month.
    is_unknown: bool = False
    # The error for which the rest is tried again.
    retry: SiteAgentError | None = None

    @property
    def ending(self) -> Ending:
        """Return the gravest ending that applies."""
        if self.retry:
            return Ending.AGAIN
        if self.failures:
            return Ending.FAILED
        if self.held:
            return Ending.HELD
        return Ending.UNKNOWN if self.is_unknown else Ending.DONE

    def say(self, mark: Mark, text: str) -> None:
        self.lines.append(Line(mark, text))

    def fail(self, sentence: str) -> None:
        self.failures.append(sentence)
        self.say(Mark.ERROR, sentence)

    def load(self, observed: ObservedOffering, interrupted: Callable[[], bool]) -> None:
        """Read the month, plan, submit. Raises SiteAgentError."""
        choice = planner.choose(observed.resources, self.options.accounts)
        for account in choice.unknown:
            self.say(
                Mark.WARNING, f"no resource of the offering has the backend id {account}: it is passed over"
            )
        if not choice.active:
            whose = " among those that were asked for" if self.options.accounts else ""
            self.say(
                Mark.INFO,
                "No active resources found for offering, skipping month: "
                f"none of its resources{whose} is OK in Waldur and has a backend_id",
            )
            return
        self.resources = len(choice.active)
        self.say(Mark.FOUND, f"Found {self.resources} active resources to process")
        if not observed.components:
            names = ", ".join(self.site.offering.components) or "none"
            self.fail(
                f"Waldur's offering takes usage of no configured component ({names}): run load-components, and look at "
                "`accounting_type`"
            )
            return
        for name in observed.missing:
            self.say(Mark.WARNING, f"Waldur's offering has no component {name}: run load-components")
        seen = report_facts.month(self.site, self.month, observed, with_users=self.options.with_users)
        choice = planner.with_usage(choice, seen.usage, every=self.options.reconcile_stale)
        active = {resource.uuid for resource in choice.active}
        self.skipped = sum(resource.uuid not in active for resource in choice.reportable)
        if not self._has_records(observed, choice, seen):
            return
        self.say(Mark.PLAN, f"Processing usage data for {choice.counted} accounts")
        self._submit(self._planned(observed, choice, seen), interrupted)
        if self.retry is None:
            if not self.submitted and not self.failures and not self.held:
                self.say(Mark.INFO, f"Waldur has all usage of {self.month} already")
            rest = f", {len(self.failures)} failed" if self.failures else ""
            rest += f", {len(self.held)} held" if self.held else ""
            self.say(Mark.DONE, f"Completed processing {self.month} ({self.resources} resources){rest}")

    def _has_records(self, observed: ObservedOffering, choice: Choice, seen: ObservedMonth) -> bool:
        """Return whether the cluster has records of this month, and of this offering; say why not."""
        observed.snapshot.require(Part.ACCOUNTS)
        usage, reconciles = seen.usage, self.options.reconcile_stale
        is_foreign = planner.is_foreign(observed.resources, usage, observed.snapshot.accounts)
        if choice.counted or (reconciles and usage.records and not is_foreign):
            return True
        self.is_unknown = is_foreign or not usage.records
        query = report_facts.query(self.site, self.month)
        command = report_facts.reader(self.site).usage_command(query, fold(choice.active[0].backend_id))
        if not usage.records:
            why = "the cluster names no job at all in that month"
        elif is_foreign and reconciles:
            why = "the cluster has none of the offering's accounts, so nothing is set to zero: is it the right one?"
        else:
            why = "the cluster names no job of these accounts in that month"
        self.say(
            Mark.INFO,
            f"No usage data found for {self.month}: {why}; backend ids have to be names of accounts; by hand: "
            f"`{command}`",
        )
        return False

    def _planned(self, observed: ObservedOffering, choice: Choice, seen: ObservedMonth) -> PlannedReport:
        """Plan the month, and name the resources that are skipped."""
        site, options = self.site, self.options
        components = observed.components
        if options.reconcile_stale:
            lacking = report_facts.untracked(site, components, [seen.usage])
            for name, tres in lacking.items():
                self.say(
                    Mark.WARNING, f"component {name}: the cluster does not track {tres}; it is left as it is"
                )
            components = tuple(c for c in components if c.name not in lacking)
        rules = replace(
            report_facts.rules(site, observed, components, with_users=options.with_users),
            # With reconcile_stale the operator has said that no usage is none.
            known=frozenset(fold(resource.backend_id) for resource in choice.reportable),
            with_zeros=False,
        )
        plans = usage_planner.plan_month(choice.reportable, seen.usage, seen.ledger, rules)
        if not options.reconcile_stale:
            plans = [planner.without_zeros(plan) for plan in plans]
        for plan in plans:
            if plan.skipped and plan.needs_person:
                self.fail(f"{plan.account}: {plan.skipped}")
            elif plan.skipped:
                remedy = "" if plan.resource.state in TAKING else "; set it OK and load the month again"
                self.say(Mark.WARNING, f"{plan.account}: {plan.skipped}{remedy}")
        month = PlannedMonth(
            self.month,
            attribution(self.month, site.zone),
            seen,
            tuple(plans),
            is_current=Month.of(datetime.now(site.zone)) == self.month,
        )
        return PlannedReport(observed, (month,), ReportState())

    def _submit(self, planned: PlannedReport, interrupted: Callable[[], bool]) -> None:
        """Submit the month. What would lower a figure is held, unless the options allow it; nothing is written down
        for `approve`: the operator decides with an option.
        """
        site, options = self.site, self.options
        with engine.passing(
            site, MODE, is_recorded=False, must_yield=interrupted, applies=not options.dry_run
        ) as run:
            decreases = UsageDecreases.ALLOW if options.may_lower else UsageDecreases.HOLD
            run.rules = replace(run.rules, usage_decreases=decreases)
            run.cause, run.holds = CAUSE, False
            run.given = {LoadedMonth: planned}
            engine.reconcile(run, LoadedMonth(run, self._announce))
            for work in run.works:
                for action in only(UsageAction, work.decision.allowed):
                    self._note_submitted(action)
        if not options.dry_run:
            self._conclude(planned, run.report)

    def _announce(self, planned: PlannedReport, decision: Decision) -> None:
        """Say what is held or refused, and which users Waldur will know by their name only."""
        for held in decision.held:
            self.held.append(held.reason)
            self.say(Mark.WARNING, f"held: {held.reason}. Waldur keeps what it has; {HOW_TO_LOWER}")
        users = {
            name
            for action in only(ReportUserUsage, decision.allowed)
            for name, amount in action.after
            if amount is not None and Decimal(amount)
        }
        linked = {fold(name) for name in planned.observed.links}
        if unlinked := sorted(name for name in users if fold(name) not in linked):
            self.say(
                Mark.INFO,
                "without an offering user in Waldur, submitted by name only: "
                f"{shortlist(unlinked, NAMED_AT_MOST)}",
            )
        for sentence in sorted({refused.sentence for refused in decision.refused}):
            self.fail(f"nothing is submitted: {sentence}")

    def _conclude(self, planned: PlannedReport, report: PassReport) -> None:
        for action in only(UsageAction, (outcome.action for outcome in report.outcomes if outcome.done)):
            self._note_submitted(action)
        if planned.state.refused:
            self.fail(
                f"Waldur takes no usage of {self.month}, which is closed, from this token: use the token of a staff "
                "user"
            )
        if report.error is not None:
            self.fail(error_text(report.error))
        for resource in report.resources if report.error is None else ():
            if resource.error is not None and resource.result is not Result.RETRY:
                self.fail(f"{resource.account}: {error_text(resource.error)}")
        self.retry = report.retryable_error

    def _note_submitted(self, action: UsageAction) -> None:
        """Count and describe an action that was carried out, or would be without `dry_run`."""
        self.submitted.add(action.resource)
        of_users = "" if action.is_total else "of users "
        component = "" if action.is_total else f", {action.components[0]}"
        # As the reference prints them: {'cpu': 15000.00, 'mem': 25000.00}
        amounts = ", ".join(f"{name!r}: {amount}" for name, amount in action.after)
        verb = "[DRY-RUN] Would submit" if self.options.dry_run else "Submitted"
        self.say(Mark.SENT, f"{verb} usage {of_users}for resource {action.account}{component}: {{{amounts}}}")
        verb = "would be lowered" if self.options.dry_run else "lowered"
        for name, held, amount in action.decreases():
            self.lowered += 1
            self.say(
                Mark.WARNING, f"{action.account} in {action.month}: {name} {verb} from {held} to {amount}"
            )


class LoadedMonth(Submission):
    """A month that was planned with its own rules."""

    def __init__(self, run: Pass, say: Callable[[PlannedReport, Decision], None]) -> None:
        super().__init__(run, lambda: datetime.now(UTC))
        self._say = say

    def announce(self, work: Work[PlannedReport]) -> None:
        self._say(work.plan, work.decision)

    def tell(self, work: Work[PlannedReport]) -> None:
        self.report(work)

    def leave(self, work: Work[PlannedReport]) -> None:
        if not self.run.applies:
            self._say(work.plan, work.decision)
