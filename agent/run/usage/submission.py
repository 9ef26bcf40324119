# SPDX-License-Identifier: MIT
"""Telling Waldur what was used: totals of a month first, then the shares of users, several requests at a time.

What Waldur refuses for one resource stops no other. An outage ends the pass where it is; figures are absolute, so
the next one tells what is left. So does a pass whose time is up, or that makes way for an order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TypeVar

from agent.config.model import Mode
from agent.core.errors import PassUnfinished, SiteAgentError, WaldurAnswerError, WaldurError
from agent.core.names import fold
from agent.core.periods import Month
from agent.core.plans import Outcome
from agent.core.usage_actions import Amounts, ReportUsage, ReportUserUsage
from agent.plan.policy.gate import Decision
from agent.plan.usage.planning import Ledger, UsagePlan
from agent.run.circuit_breaker import Outage
from agent.run.results import PassReport, ResourceResult, Result, postponed
from agent.run.site import Site
from agent.run.usage import planning as report_plan
from agent.run.usage.planning import MonthEnded, PlannedMonth, PlannedReport
from agent.state import journal
from agent.state import reports as report_memory
from agent.waldur import pool, usages

log = logging.getLogger(__name__)

MODE = Mode.REPORT
AT_ONCE = 48
# What may still be told of a month that is closed for our token.
NOTHING: frozenset[str] = frozenset()

Told = TypeVar("Told", ReportUsage, ReportUserUsage)
# What Waldur made of one action: nothing to say, or who of its users was refused.
Answer = Mapping[str, WaldurError] | None
# Not even tried, because Waldur is away.
UNSENT: Mapping[str, WaldurError] = MappingProxyType({})


@dataclass
class Delivery:
    """One report under way. `errors` by resource; `told`: what Waldur took, by resource; `stop`: why it ends early.
    `closed`: months that Waldur refuses, with the components that it takes all the same. `cause`: what the journal says
    of the reason, where it is no pass.
    """

    site: Site
    planned: PlannedReport
    judgement: Decision
    report: PassReport
    interrupted: Callable[[], bool] = lambda: False
    errors: dict[str, SiteAgentError] = field(default_factory=dict)
    told: dict[str, list[str]] = field(default_factory=dict)
    stop: SiteAgentError | None = None
    closed: dict[Month, frozenset[str]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    dateless: bool = False
    outage: Outage = field(default_factory=Outage)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    cause: str = ""

    def done(self, action: ReportUsage | ReportUserUsage, error: SiteAgentError | None) -> Outcome:
        outcome = Outcome(action, error)
        self.report.outcomes.append(outcome)
        log.debug("%s", action.render())
        if error is None:
            self.told.setdefault(action.resource, []).append(_in_short(action))
        else:
            self.failed.add(action.resource)
            self.errors.setdefault(action.resource, error)
        return outcome

    def tell_once(self, sentence: str, *, is_news: bool) -> None:
        if is_news:
            self.report.notes.append(sentence)


def apply(delivery: Delivery) -> None:
    """All months, oldest first, and what the next report has to know of them."""
    tell(delivery)
    _remember(delivery)


def tell(delivery: Delivery) -> None:
    """All months, oldest first. Nothing is remembered."""
    blocked = delivery.judgement.blocked
    for month in delivery.planned.months:
        plans = [plan.without(blocked) for plan in month.plans if not plan.skipped]
        _tell_month(delivery, month, [plan for plan in plans if plan.actions])
    if delivery.stop is not None and not delivery.stop.retryable:
        delivery.report.error = delivery.stop
    _conclude(delivery)


def _tell_month(delivery: Delivery, month: PlannedMonth, plans: Sequence[UsagePlan]) -> None:
    done_before = len(delivery.report.outcomes)
    _deliver(delivery, month, [plan.totals for plan in plans if plan.totals], _totals_of(delivery, month))
    outcomes = delivery.report.outcomes[done_before:]
    failed = {o.action.resource for o in outcomes if o.error and isinstance(o.action, ReportUsage)}
    shares = [share for plan in plans for share in plan.shares if share.resource not in failed]
    shares = [share for share in shares if _open_part(delivery, month, share)]
    if shares:
        ledger = _with_new_records(delivery, month, shares)
        _deliver(delivery, month, shares, _shares_of(delivery, month, ledger))


def _totals_of(delivery: Delivery, month: PlannedMonth) -> Callable[[ReportUsage], Answer]:
    def send(action: ReportUsage) -> Answer:
        amounts = _amounts(action.after)
        _dated(
            delivery,
            month,
            lambda date: usages.set_totals(delivery.site.client, action.resource, amounts, date),
        )
        return None

    return send


def _shares_of(
    delivery: Delivery, month: PlannedMonth, ledger: Ledger
) -> Callable[[ReportUserUsage], Answer]:
    links = {fold(name): uuid for name, uuid in delivery.planned.picture.links.items()}

    def send(action: ReportUserUsage) -> Answer:
        record = ledger.record(action.resource, action.component)
        if record is None:
            raise WaldurAnswerError(
                f"Waldur shows no {action.component} of resource {action.resource} in {action.month}, where its total "
                "was told: is Waldur's time zone another than `timezone`?",
                method="GET",
                path=usages.PATH,
            )
        amounts = _amounts(action.after)
        linked = {name: links.get(fold(name), "") for name, _ in amounts}
        return _dated(
            delivery,
            month,
            lambda date: usages.set_users(delivery.site.client, record.uuid, amounts, linked, date),
        )

    return send


Sent = TypeVar("Sent")


def _dated(delivery: Delivery, month: PlannedMonth, send: Callable[[datetime | None], Sent]) -> Sent:
    """Sent with the month's date; without, where Waldur takes none from this token and it is the present month."""
    date = None if delivery.dateless else month.date
    try:
        return send(date)
    except WaldurError as error:
        if date is None or not month.is_current or not usages.refuses_date(error):
            raise
        if not report_plan.is_certain(delivery.site, month.month, delivery.clock()):
            raise
        _go_without_dates(delivery, error)
        return send(None)


def _deliver(
    delivery: Delivery,
    month: PlannedMonth,
    actions: Sequence[Told],
    send: Callable[[Told], Answer],
) -> None:
    """One action goes first, and tells whether the month is open; what failed the last time goes last."""
    waiting: list[Told] = sorted(
        actions, key=lambda action: action.resource in delivery.planned.memory.failed
    )
    size = 1
    while waiting:
        listed, waiting = waiting[:size], waiting[size:]
        portion: list[Told] = [part for action in listed if (part := _open_part(delivery, month, action))]
        if not portion:
            continue
        if not _may_go_on(delivery, month):
            _leave(delivery, portion)
            _leave(delivery, [a for a in waiting if _open_part(delivery, month, a)])
            return
        waiting = _noted(delivery, month, _answers(delivery, portion, send)) + waiting
        size = AT_ONCE


def _answers(
    delivery: Delivery, portion: Sequence[Told], send: Callable[[Told], Answer]
) -> Mapping[Told, Answer | WaldurError]:
    outage = delivery.outage

    def attempt(action: Told) -> Answer:
        if outage.error is not None:
            return UNSENT
        try:
            answer = send(action)
        except WaldurError as error:
            outage.note(error)
            raise
        outage.note(None)
        return answer

    return pool.each(portion, attempt)


def _noted(
    delivery: Delivery, month: PlannedMonth, answers: Mapping[Told, Answer | WaldurError]
) -> list[Told]:
    """What became of a portion. Returns what is to be told once more: components that a closed month still takes."""
    again: list[Told] = []
    outcomes: list[Outcome] = []
    delivery.stop = delivery.stop or delivery.outage.error
    for action, answer in answers.items():
        if answer is UNSENT:
            _leave(delivery, [action])
            continue
        error = answer if isinstance(answer, WaldurError) else _refused_users(action, answer)
        if error is not None and not month.is_current and usages.refuses_month(error):
            _close(delivery, month.month, action, error)
            again.append(action)
        else:
            outcomes.append(delivery.done(action, error))
    _write_down(delivery, month, outcomes)
    return again


def _refused_users(action: ReportUsage | ReportUserUsage, refused: Answer) -> WaldurError | None:
    """One error for the users whose share Waldur refused; the others' were taken."""
    if not refused or not isinstance(action, ReportUserUsage):
        return None
    first = next(iter(refused.values()))
    return WaldurError(
        f"{action.component} of {', '.join(sorted(refused))}: {first}",
        method=first.method,
        path=first.path,
        status=first.status,
        detail=first.detail,
    )


def _write_down(delivery: Delivery, month: PlannedMonth, outcomes: Sequence[Outcome]) -> None:
    """Each failure and each decrease; of the rest one line: a busy site tells of hundreds of accounts in a pass."""
    kept = [o for o in outcomes if o.error or any(o.action.decreases())]
    journal.record(delivery.site, MODE, kept, cause=delivery.cause)
    totals = [o.action for o in outcomes if not o.error and isinstance(o.action, ReportUsage)]
    told = {t.account: dict(t.after) for t in totals}
    journal.told(delivery.site, MODE, str(month.month), told, cause=delivery.cause)


def _open_part(delivery: Delivery, month: PlannedMonth, action: Told) -> Told | None:
    """What of an action Waldur may be told; None where the month is closed for it."""
    if month.is_current:
        return action
    taken = NOTHING if delivery.dateless else delivery.closed.get(month.month)
    if taken is None:
        return action
    if isinstance(action, ReportUserUsage):
        return action if action.component in taken else None
    after = tuple((name, amount) for name, amount in action.after if name in taken)
    return replace(action, after=after) if after else None


def _close(
    delivery: Delivery, month: Month, action: ReportUsage | ReportUserUsage, error: WaldurError
) -> None:
    """A month that Waldur refuses: told once, and left alone for a day. Components with limits may still be taken."""
    if usages.refuses_date(error):
        _go_without_dates(delivery, error)
        return
    picture, memory = delivery.planned.picture, delivery.planned.memory
    names = [action.component] if isinstance(action, ReportUserUsage) else [name for name, _ in action.after]
    with_limits = frozenset(c.name for c in picture.components if picture.has_limit(c.name))
    is_all = with_limits.issuperset(names)
    taken = NOTHING if is_all else with_limits
    delivery.closed[month] = taken & delivery.closed.get(month, taken)
    is_news = memory.refuse(month, delivery.clock())
    if is_all:
        memory.refuse(month, delivery.clock(), limits=True)
    delivery.tell_once(
        f"Waldur takes no usage of {month} from this token any more ({error.detail}); `historical-usage` with a staff "
        "token does it",
        is_news=is_news,
    )


def _go_without_dates(delivery: Delivery, error: WaldurError) -> None:
    """Waldur then takes its own present month; nothing else can be told."""
    delivery.dateless = True
    delivery.tell_once(
        f"Waldur takes no dates from this token ({error.detail}), so that it is told of the present month only: give "
        "the token's user a role at the provider, as its owner or service manager",
        is_news=delivery.planned.memory.refuse_dates(delivery.clock()),
    )


def _may_go_on(delivery: Delivery, month: PlannedMonth) -> bool:
    if delivery.stop is not None:
        return False
    is_dateless = delivery.dateless or month.date is None
    if is_dateless and not report_plan.is_certain(delivery.site, month.month, delivery.clock()):
        delivery.stop = MonthEnded(
            f"{month.month} is about to end: the rest of it is told by the next report"
        )
    # A portion is told in every pass, or a queue that is never empty would keep reports away.
    elif len(delivery.report.outcomes) >= AT_ONCE and delivery.interrupted():
        delivery.stop = PassUnfinished(
            "something more urgent waits, or the time is up: the rest is told next"
        )
    return delivery.stop is None


def _leave(delivery: Delivery, actions: Sequence[ReportUsage | ReportUserUsage]) -> None:
    for action in actions:
        if delivery.stop is not None:
            delivery.errors.setdefault(action.resource, delivery.stop)


def _with_new_records(delivery: Delivery, month: PlannedMonth, shares: Sequence[ReportUserUsage]) -> Ledger:
    """The ledger; read once more where the totals have made new records, to which shares belong."""
    ledger = month.picture.ledger
    if all(ledger.record(share.resource, share.component) for share in shares) or delivery.stop:
        return ledger
    try:
        return Ledger.of(usages.of_month(delivery.site.client, month.month))
    except WaldurError as error:
        delivery.stop = error
        return ledger


def _remember(delivery: Delivery) -> None:
    """The jobs that count up still, for the accounts that were told of; of the others what was known stays."""
    memory = delivery.planned.memory
    before = {name: dict(accounts) for name, accounts in memory.live.items()}
    held = {action for plan in delivery.judgement.held for action in plan.actions}
    for month in delivery.planned.months:
        if not month.picture.usage.records:
            continue
        kept = {plan.account for plan in month.plans if not held.isdisjoint(plan.actions)}
        memory.note_live(month.month, [j for j in report_plan.live_jobs(month) if j.account not in kept])
        known = before.get(str(month.month), {})
        memory.live[str(month.month)] |= {a: jobs for a, jobs in known.items() if a in kept}
    memory.keep(delivery.planned.memory_months)
    memory.failed = frozenset(delivery.failed)
    report_memory.save(delivery.site, memory)


def _conclude(delivery: Delivery) -> None:
    """One result for every resource that was told of, or should have been."""
    plans: dict[str, list[UsagePlan]] = {}
    for month in delivery.planned.months:
        for plan in month.plans:
            plans.setdefault(plan.resource.uuid, []).append(plan)
    for uuid, several in plans.items():
        result = _result(delivery, uuid, several)
        if result is None:
            delivery.report.in_step += 1
        else:
            delivery.report.resources.append(result)


def _result(delivery: Delivery, uuid: str, plans: Sequence[UsagePlan]) -> ResourceResult | None:
    account = plans[0].account
    error = delivery.errors.get(uuid)
    if error is not None:
        return ResourceResult(uuid, postponed(error), account, str(error), error)
    waits = [
        reason for plan in plans for action in plan.actions if (reason := delivery.judgement.reason(action))
    ]
    skipped = [plan for plan in plans if plan.skipped]
    if skipped:
        result = Result.STUCK if any(plan.needs_person for plan in skipped) else Result.WAITING
        return ResourceResult(uuid, result, account, "; ".join(dict.fromkeys(p.skipped for p in skipped)))
    if waits:
        return ResourceResult(uuid, Result.WAITING, account, "; ".join(dict.fromkeys(waits)))
    told = delivery.told.get(uuid)
    return ResourceResult(uuid, Result.DONE, account, "; ".join(told)) if told else None


def _in_short(action: ReportUsage | ReportUserUsage) -> str:
    if isinstance(action, ReportUserUsage):
        return f"{action.component} of {len(action.after)} user{'s' if len(action.after) > 1 else ''}"
    return action.subject().removeprefix(f"of {action.account} in ")


def _amounts(amounts: Amounts) -> list[tuple[str, str]]:
    return [(name, amount) for name, amount in amounts if amount is not None]
