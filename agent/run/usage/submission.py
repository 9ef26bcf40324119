# SPDX-License-Identifier: MIT
"""Submit usage to Waldur: totals of a month first, then the shares of users, several requests at a time.

What Waldur refuses for one resource stops no other. An outage ends the pass; figures are absolute, so the next pass
submits the rest. So does a pass whose time is up, or that yields to an order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from agent.config.model import Mode
from agent.core.account_names import fold
from agent.core.circuit_breaker import CircuitBreaker
from agent.core.errors import PassUnfinished, SiteAgentError, WaldurAnswerError, WaldurError
from agent.core.plans import Outcome
from agent.core.usage_actions import UsageAction
from agent.plan.usage.planning import Ledger, UsagePlan
from agent.run import engine
from agent.run.engine import Portion, Work
from agent.run.gate import Pass
from agent.run.results import ResourceResult, Result, postponed
from agent.run.usage import planning as report_plan
from agent.run.usage.closed_months import MonthAccess
from agent.run.usage.planning import MonthEnded, PlannedMonth, PlannedReport, ReportFacts
from agent.state import finalised_usage, report_state
from agent.waldur import pool, usages

AT_ONCE = 48
FAILURES_IN_A_ROW = 8

# Waldur's answer to one action: None, or the errors of the users whose share was refused.
Answer = Mapping[str, WaldurError] | None
# Not even sent, because Waldur is away.
UNSENT: Mapping[str, WaldurError] = MappingProxyType({})

ReportWork = Work[PlannedReport]


def waldur_breaker() -> CircuitBreaker[WaldurError]:
    """Return what opens when no answer came, or the token is refused. A single 500 is about what was sent: Waldur of
    2024 answers so for a resource without a plan.
    """

    def is_of_all(error: WaldurError) -> bool:
        no_answer = error.retryable and error.status is None and not isinstance(error, WaldurAnswerError)
        return no_answer or error.denied

    return CircuitBreaker(FAILURES_IN_A_ROW, opens=is_of_all, counts=lambda error: error.retryable)


class Submission(engine.Mode[ReportFacts, PlannedReport]):
    """Usage that is submitted month by month. `clock` returns the time of now."""

    key = Mode.REPORT
    paces_itself = True

    def __init__(self, run: Pass, clock: Callable[[], datetime]) -> None:
        super().__init__(run)
        self._clock = clock
        self._breaker = waldur_breaker()
        # Why the report ends early.
        self._stop: SiteAgentError | None = None
        self._months: dict[str, PlannedMonth] = {}
        # The records of a month to which shares belong, once its totals are submitted.
        self._ledgers: dict[str, Ledger] = {}
        # Submitted once more: the part of them that a closed month still takes.
        self._again: list[UsageAction] = []
        self._errors: dict[str, SiteAgentError] = {}
        self._failed: set[str] = set()
        self._failed_totals: dict[str, set[str]] = {}
        self._submitted: dict[str, list[str]] = {}
        self._count = 0
        self._plan: PlannedReport
        # The persons of the usernames in it.
        self._links: Mapping[str, str]
        self._access: MonthAccess

    def plan(self, facts: ReportFacts) -> PlannedReport:
        return report_plan.plan(facts)

    def refine(self, facts: ReportFacts, plan: PlannedReport) -> ReportFacts | None:
        return report_plan.refine(self.site, facts, plan)

    def portions(self, work: ReportWork) -> Iterator[Portion]:
        """Yield all months, oldest first; of each the totals, then the shares of users."""
        self._plan = work.plan
        self._links = {fold(name): uuid for name, uuid in work.plan.observed.links.items()}
        self._access = MonthAccess(self.site, self._clock, work.plan, work.report)
        self._months = {str(month.month): month for month in work.plan.months}
        blocked = work.decision.blocked
        for month in work.plan.months:
            name = str(month.month)
            plans = [plan.without(blocked) for plan in month.plans if not plan.skipped]
            yield from self._of_month(month, [plan.totals for plan in plans if plan.totals])
            failed = self._failed_totals.get(name, set())
            shares = [share for plan in plans for share in plan.shares if share.resource not in failed]
            shares = [share for share in shares if self._access.open_part(month, share)]
            if not shares:
                continue
            ledger = month.observed.ledger
            is_known = all(ledger.record(share.resource, share.component) for share in shares)
            if not is_known and self._stop is None:
                try:
                    # The totals have made new records, to which shares belong.
                    ledger = Ledger.of(usages.of_month(self.site.client, month.month))
                except WaldurError as error:
                    self._stop = error
            self._ledgers[name] = ledger
            yield from self._of_month(month, shares)

    def _of_month(self, month: PlannedMonth, actions: Sequence[UsageAction]) -> Iterator[Portion]:
        """Yield one action first, which tests whether the month is open; last those that failed in the last pass."""
        waiting = sorted(actions, key=lambda action: action.resource in self._plan.state.failed)
        size = 1
        while waiting:
            listed, waiting = waiting[:size], waiting[size:]
            portion = [part for action in listed if (part := self._access.open_part(month, action))]
            if not portion:
                continue
            if not self._may_go_on(month):
                self._left([*portion, *(a for a in waiting if self._access.open_part(month, a))])
                return
            self._again = []
            yield Portion(tuple(portion))
            waiting = self._again + waiting
            size = AT_ONCE

    def _may_go_on(self, month: PlannedMonth) -> bool:
        if self._stop is not None:
            return False
        if self._access.is_dateless(month) and not report_plan.is_certain(
            self.site, month.month, self._clock()
        ):
            self._stop = MonthEnded(
                f"{month.month} is about to end: the next report submits the rest of its usage"
            )
        # One portion is submitted in every pass, or a queue that is never empty would keep reports away.
        elif self._count >= AT_ONCE and (self.run.is_late or self.run.must_yield()):
            self._stop = PassUnfinished(
                "something more urgent waits, or the time is up: the next report goes on"
            )
        return self._stop is None

    def apply(self, actions: Sequence[UsageAction]) -> Sequence[Outcome]:
        """Submit, several requests at a time. Actions that are left for later have no outcome."""

        def attempt(action: UsageAction) -> Answer:
            if self._breaker.error is not None:
                return UNSENT
            try:
                answer = self._send(action)
            except WaldurError as error:
                self._breaker.record(error)
                raise
            self._breaker.record(None)
            return answer

        answers = pool.each(actions, attempt)
        self._stop = self._stop or self._breaker.error
        outcomes: list[Outcome] = []
        for action, answer in answers.items():
            month, error = self._months[action.month], None
            if isinstance(answer, WaldurError):
                error = answer
            elif answer and not action.is_total:
                # One error for the users whose share Waldur refused; the others' were taken.
                first = next(iter(answer.values()))
                error = WaldurError(
                    f"{action.components[0]} of {', '.join(sorted(answer))}: {first}",
                    method=first.method,
                    path=first.path,
                    status=first.status,
                    detail=first.detail,
                )
            if answer is UNSENT:
                self._left([action])
            elif error is not None and not month.is_current and usages.refuses_month(error):
                self._access.close(month.month, action, error)
                self._again.append(action)
            else:
                outcomes.append(Outcome(action, error))
        return outcomes

    def _send(self, action: UsageAction) -> Answer:
        """Send one action. Raises WaldurError."""
        month = self._months[action.month]
        amounts = [(name, amount) for name, amount in action.after if amount is not None]
        client = self.site.client
        if action.is_total:
            uuid = action.resource
            self._access.send(month, lambda date: usages.set_totals(client, uuid, amounts, date))
            return None
        (component,) = action.components
        record = self._ledgers[action.month].record(action.resource, component)
        if record is None:
            raise WaldurAnswerError(
                f"Waldur reports no {component} of resource {action.resource} in {action.month}, where its total "
                "was submitted: is Waldur's time zone another than `timezone`?",
                method="GET",
                path=usages.PATH,
            )
        linked = {name: self._links.get(fold(name), "") for name, _ in amounts}
        return self._access.send(
            month, lambda date: usages.set_users(client, record.uuid, amounts, linked, date)
        )

    def read_back(self, work: ReportWork, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Note what was submitted. Nothing is read: figures are absolute, and Waldur answers with an error where it
        keeps none.
        """
        self._count += len(outcomes)
        for outcome in outcomes:
            action = outcome.action
            assert isinstance(action, UsageAction)
            if outcome.error is None:
                self._submitted.setdefault(action.resource, []).append(action.in_short())
            else:
                self._failed.add(action.resource)
                if action.is_total:
                    self._failed_totals.setdefault(action.month, set()).add(action.resource)
                self._errors.setdefault(action.resource, outcome.error)

    def failed(self, work: ReportWork, portion: Portion, error: SiteAgentError) -> None:
        """Note a portion of which nothing was sent."""
        self._stop = self._stop or error
        self._left(portion.actions)

    def _left(self, actions: Sequence[UsageAction]) -> None:
        for action in actions:
            if self._stop is not None:
                self._errors.setdefault(action.resource, self._stop)

    def error_of(self, resource_uuid: str) -> SiteAgentError | None:
        """Return what was the matter with the usage of a resource, if anything was."""
        return self._errors.get(resource_uuid)

    def report(self, work: ReportWork) -> None:
        """Add one result for every resource whose usage was submitted, or should have been."""
        if self._stop is not None and not self._stop.retryable:
            work.report.error = self._stop
        plans: dict[str, list[UsagePlan]] = {}
        for month in work.plan.months:
            for plan in month.plans:
                plans.setdefault(plan.resource.uuid, []).append(plan)
        for uuid, several in plans.items():
            account, error = several[0].account, self._errors.get(uuid)
            reasons = [work.decision.reason(action) for plan in several for action in plan.actions]
            waits = dict.fromkeys(reason for reason in reasons if reason)
            skipped = [plan for plan in several if plan.skipped]
            if error is not None:
                result = ResourceResult(uuid, postponed(error), account, str(error), error)
            elif skipped:
                kind = Result.STUCK if any(plan.needs_person for plan in skipped) else Result.WAITING
                sentences = dict.fromkeys(plan.skipped for plan in skipped)
                result = ResourceResult(uuid, kind, account, "; ".join(sentences))
            elif waits:
                result = ResourceResult(uuid, Result.WAITING, account, "; ".join(waits))
            elif submitted := self._submitted.get(uuid):
                result = ResourceResult(uuid, Result.DONE, account, "; ".join(submitted))
            else:
                work.report.in_step += 1
                continue
            work.report.resources.append(result)

    def remember(self, work: ReportWork) -> None:
        """Save what the next count needs, and the jobs that still count up, for the accounts that were submitted; those
        of held accounts stay.
        """
        state = work.plan.state
        before = {name: dict(accounts) for name, accounts in state.live.items()}
        held = {action for plan in work.decision.held for action in plan.actions}
        for month in work.plan.months:
            if not month.observed.usage.records:
                continue
            kept = {plan.account for plan in month.plans if not held.isdisjoint(plan.actions)}
            state.note_live(month.month, [j for j in report_plan.live_jobs(month) if j.account not in kept])
            known = before.get(str(month.month), {})
            state.live[str(month.month)] |= {a: jobs for a, jobs in known.items() if a in kept}
        state.keep(work.plan.state_months)
        state.failed = frozenset(self._failed)
        report_state.save(self.site.state_dir, self.site.offering.uuid, state)
        if work.plan.finalised is not None:
            finalised_usage.save(self.site.state_dir, self.site.offering.uuid, work.plan.finalised)
