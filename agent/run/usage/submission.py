# SPDX-License-Identifier: MIT
"""Telling Waldur what was used: totals of a month first, then the shares of users, several requests at a time.

What Waldur refuses for one resource stops no other. An outage ends the pass where it is; figures are absolute, so
the next one tells what is left. So does a pass whose time is up, or that makes way for an order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TypeVar

from agent.core.account_names import fold
from agent.core.errors import PassUnfinished, SiteAgentError, WaldurAnswerError, WaldurError
from agent.core.periods import Month
from agent.core.plans import Outcome
from agent.core.usage_actions import Amounts, ReportUserUsage, UsageAction
from agent.plan.usage.planning import Ledger, UsagePlan
from agent.run.circuit_breaker import Outage
from agent.run.engine import Portion, Work
from agent.run.results import PassReport, ResourceResult, Result, postponed
from agent.run.site import Site
from agent.run.usage import planning as report_plan
from agent.run.usage.planning import MonthEnded, PlannedMonth, PlannedReport
from agent.state import report_state
from agent.waldur import pool, usages

AT_ONCE = 48
# What may still be told of a month that is closed for our token.
NOTHING: frozenset[str] = frozenset()

# What Waldur made of one action: nothing to say, or who of its users was refused.
Answer = Mapping[str, WaldurError] | None
# Not even tried, because Waldur is away.
UNSENT: Mapping[str, WaldurError] = MappingProxyType({})

Sent = TypeVar("Sent")
ReportWork = Work[PlannedReport]


class Submission:
    """One report under way. `clock`: the time of now; `interrupted`: whether something more urgent waits."""

    def __init__(
        self, site: Site, clock: Callable[[], datetime], interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        self._site = site
        self._clock = clock
        self._interrupted = interrupted
        self._outage = Outage()
        # Why the report ends early.
        self._stop: SiteAgentError | None = None
        self._months: dict[str, PlannedMonth] = {}
        # The records of a month to which shares belong, once its totals are told.
        self._ledgers: dict[str, Ledger] = {}
        # Months that Waldur refuses, with the components that it takes all the same.
        self._closed: dict[Month, frozenset[str]] = {}
        self._is_dateless = False
        # What is told once more: the part of it that a closed month still takes.
        self._again: list[UsageAction] = []
        self._errors: dict[str, SiteAgentError] = {}
        self._failed: set[str] = set()
        self._failed_totals: dict[str, set[str]] = {}
        self._told: dict[str, list[str]] = {}
        self._count = 0
        self._plan: PlannedReport
        self._report: PassReport

    def portions(self, work: ReportWork) -> Iterator[Portion]:
        """All months, oldest first; of each the totals, then the shares of users."""
        self._plan = work.plan
        self._report = work.report
        self._months = {str(month.month): month for month in work.plan.months}
        blocked = work.decision.blocked
        for month in work.plan.months:
            plans = [plan.without(blocked) for plan in month.plans if not plan.skipped]
            yield from self._of_month(month, [plan.totals for plan in plans if plan.totals])
            failed = self._failed_totals.get(str(month.month), set())
            shares = [share for plan in plans for share in plan.shares if share.resource not in failed]
            shares = [share for share in shares if self._open_part(month, share)]
            if shares:
                self._ledgers[str(month.month)] = self._with_new_records(month, shares)
                yield from self._of_month(month, shares)

    def _of_month(self, month: PlannedMonth, actions: Sequence[UsageAction]) -> Iterator[Portion]:
        """One action goes first, and tells whether the month is open; what failed the last time goes last."""
        waiting = sorted(actions, key=lambda action: action.resource in self._plan.memory.failed)
        size = 1
        while waiting:
            listed, waiting = waiting[:size], waiting[size:]
            portion = [part for action in listed if (part := self._open_part(month, action))]
            if not portion:
                continue
            if not self._may_go_on(month):
                self._leave([*portion, *(a for a in waiting if self._open_part(month, a))])
                return
            self._again = []
            yield Portion(tuple(portion))
            waiting = self._again + waiting
            size = AT_ONCE

    def apply(self, actions: Sequence[UsageAction]) -> Sequence[Outcome]:
        """Tell Waldur, several requests at a time. What is left for later has no outcome."""

        def attempt(action: UsageAction) -> Answer:
            if self._outage.error is not None:
                return UNSENT
            try:
                answer = self._send(action)
            except WaldurError as error:
                self._outage.note(error)
                raise
            self._outage.note(None)
            return answer

        answers = pool.each(actions, attempt)
        self._stop = self._stop or self._outage.error
        outcomes: list[Outcome] = []
        for action, answer in answers.items():
            month = self._months[action.month]
            error = answer if isinstance(answer, WaldurError) else _refused_users(action, answer)
            if answer is UNSENT:
                self._leave([action])
            elif error is not None and not month.is_current and usages.refuses_month(error):
                self._close(month.month, action, error)
                self._again.append(action)
            else:
                outcomes.append(Outcome(action, error))
        return outcomes

    def note(self, _work: ReportWork, _portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """What Waldur said is what is there: figures are absolute, and it answers with an error where it keeps none."""
        self._count += len(outcomes)
        for outcome in outcomes:
            action = outcome.action
            assert isinstance(action, UsageAction)
            if outcome.error is None:
                self._told.setdefault(action.resource, []).append(action.in_short())
            else:
                self._failed.add(action.resource)
                if action.is_total:
                    self._failed_totals.setdefault(action.month, set()).add(action.resource)
                self._errors.setdefault(action.resource, outcome.error)

    def leave(self, _work: ReportWork, portion: Portion, error: SiteAgentError) -> None:
        """Nothing of a portion was sent."""
        self._stop = self._stop or error
        self._leave(portion.actions)

    def tell(self, work: ReportWork) -> None:
        """One result for every resource that was told of, or should have been."""
        self._plan = work.plan
        if self._stop is not None and not self._stop.retryable:
            work.report.error = self._stop
        plans: dict[str, list[UsagePlan]] = {}
        for month in work.plan.months:
            for plan in month.plans:
                plans.setdefault(plan.resource.uuid, []).append(plan)
        for uuid, several in plans.items():
            result = self._result(work, uuid, several)
            if result is None:
                work.report.in_step += 1
            else:
                work.report.resources.append(result)

    def remember(self, work: ReportWork) -> None:
        """Keep the jobs that count up still, for the accounts that were told of; of the others what was known stays."""
        memory = work.plan.memory
        before = {name: dict(accounts) for name, accounts in memory.live.items()}
        held = {action for plan in work.decision.held for action in plan.actions}
        for month in work.plan.months:
            if not month.picture.usage.records:
                continue
            kept = {plan.account for plan in month.plans if not held.isdisjoint(plan.actions)}
            memory.note_live(month.month, [j for j in report_plan.live_jobs(month) if j.account not in kept])
            known = before.get(str(month.month), {})
            memory.live[str(month.month)] |= {a: jobs for a, jobs in known.items() if a in kept}
        memory.keep(work.plan.memory_months)
        memory.failed = frozenset(self._failed)
        report_state.save(self._site.state_dir, self._site.offering.uuid, memory)

    def _send(self, action: UsageAction) -> Answer:
        month, amounts = self._months[action.month], _amounts(action.after)
        client = self._site.client
        if action.is_total:
            uuid = action.resource
            self._dated(month, lambda date: usages.set_totals(client, uuid, amounts, date))
            return None
        (component,) = action.components
        record = self._ledgers[action.month].record(action.resource, component)
        if record is None:
            raise WaldurAnswerError(
                f"Waldur shows no {component} of resource {action.resource} in {action.month}, where its total "
                "was told: is Waldur's time zone another than `timezone`?",
                method="GET",
                path=usages.PATH,
            )
        links = {fold(name): uuid for name, uuid in self._plan.picture.links.items()}
        linked = {name: links.get(fold(name), "") for name, _ in amounts}
        return self._dated(month, lambda date: usages.set_users(client, record.uuid, amounts, linked, date))

    def _dated(self, month: PlannedMonth, send: Callable[[datetime | None], Sent]) -> Sent:
        """Send with the month's date; without, where Waldur takes none from this token and it is the present month."""
        date = None if self._is_dateless else month.date
        try:
            return send(date)
        except WaldurError as error:
            if date is None or not month.is_current or not usages.refuses_date(error):
                raise
            if not report_plan.is_certain(self._site, month.month, self._clock()):
                raise
            self._go_without_dates(error)
            return send(None)

    def _open_part(self, month: PlannedMonth, action: UsageAction) -> UsageAction | None:
        """What of an action Waldur may be told; None where the month is closed for it."""
        if month.is_current:
            return action
        taken = NOTHING if self._is_dateless else self._closed.get(month.month)
        if taken is None:
            return action
        return action.part(taken)

    def _close(self, month: Month, action: UsageAction, error: WaldurError) -> None:
        """Leave a month that Waldur refuses alone for a day, but for components with limits, and say so once."""
        if usages.refuses_date(error):
            self._go_without_dates(error)
            return
        picture, memory = self._plan.picture, self._plan.memory
        with_limits = frozenset(c.name for c in picture.components if picture.has_limit(c.name))
        is_all = with_limits.issuperset(action.components)
        taken = NOTHING if is_all else with_limits
        self._closed[month] = taken & self._closed.get(month, taken)
        is_news = memory.refuse(month, self._clock())
        if is_all:
            memory.refuse(month, self._clock(), limits=True)
        if is_news:
            self._report.notes.append(
                f"Waldur takes no usage of {month} from this token any more ({error.detail}); `historical-usage` with "
                "a staff token does it"
            )

    def _go_without_dates(self, error: WaldurError) -> None:
        """Waldur then takes its own present month; nothing else can be told."""
        self._is_dateless = True
        if self._plan.memory.refuse_dates(self._clock()):
            self._report.notes.append(
                f"Waldur takes no dates from this token ({error.detail}), so that it is told of the present month "
                "only: give the token's user a role at the provider, as its owner or service manager"
            )

    def _may_go_on(self, month: PlannedMonth) -> bool:
        if self._stop is not None:
            return False
        is_dateless = self._is_dateless or month.date is None
        if is_dateless and not report_plan.is_certain(self._site, month.month, self._clock()):
            self._stop = MonthEnded(
                f"{month.month} is about to end: the rest of it is told by the next report"
            )
        # A portion is told in every pass, or a queue that is never empty would keep reports away.
        elif self._count >= AT_ONCE and self._interrupted():
            self._stop = PassUnfinished(
                "something more urgent waits, or the time is up: the rest is told next"
            )
        return self._stop is None

    def _leave(self, actions: Sequence[UsageAction]) -> None:
        for action in actions:
            if self._stop is not None:
                self._errors.setdefault(action.resource, self._stop)

    def _with_new_records(self, month: PlannedMonth, shares: Sequence[ReportUserUsage]) -> Ledger:
        """The ledger; read once more where the totals have made new records, to which shares belong."""
        ledger = month.picture.ledger
        if all(ledger.record(share.resource, share.component) for share in shares) or self._stop:
            return ledger
        try:
            return Ledger.of(usages.of_month(self._site.client, month.month))
        except WaldurError as error:
            self._stop = error
            return ledger

    def _result(self, work: ReportWork, uuid: str, plans: Sequence[UsagePlan]) -> ResourceResult | None:
        account = plans[0].account
        error = self._errors.get(uuid)
        if error is not None:
            return ResourceResult(uuid, postponed(error), account, str(error), error)
        reasons = (work.decision.reason(action) for plan in plans for action in plan.actions)
        waits = [reason for reason in reasons if reason]
        skipped = [plan for plan in plans if plan.skipped]
        if skipped:
            result = Result.STUCK if any(plan.needs_person for plan in skipped) else Result.WAITING
            return ResourceResult(uuid, result, account, "; ".join(dict.fromkeys(p.skipped for p in skipped)))
        if waits:
            return ResourceResult(uuid, Result.WAITING, account, "; ".join(dict.fromkeys(waits)))
        told = self._told.get(uuid)
        return ResourceResult(uuid, Result.DONE, account, "; ".join(told)) if told else None


def _refused_users(action: UsageAction, refused: Answer) -> WaldurError | None:
    """One error for the users whose share Waldur refused; the others' were taken."""
    if not refused or action.is_total:
        return None
    first = next(iter(refused.values()))
    return WaldurError(
        f"{action.components[0]} of {', '.join(sorted(refused))}: {first}",
        method=first.method,
        path=first.path,
        status=first.status,
        detail=first.detail,
    )


def _amounts(amounts: Amounts) -> list[tuple[str, str]]:
    return [(name, amount) for name, amount in amounts if amount is not None]
