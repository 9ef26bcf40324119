# SPDX-License-Identifier: MIT
"""Telling Waldur what was used: totals of a month first, then the shares of users, several requests at a time.

What Waldur refuses for one resource stops no other. An outage ends the pass where it is; figures are absolute, so
the next one tells what is left. So does a pass whose time is up, or that makes way for an order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from agent.config.model import Mode
from agent.core.errors import PassUnfinished, SiteAgentError, WaldurAnswerError, WaldurError
from agent.core.plans import Outcome
from agent.core.usage_actions import Amounts, ReportUsage, ReportUserUsage
from agent.core.waldur_actions import WaldurAction
from agent.plan.decreases import lowered
from agent.plan.policy import Judgement
from agent.plan.usage import Ledger, UsagePlan
from agent.run import journal, report_memory, report_plan
from agent.run.report_plan import PlannedMonth, PlannedReport
from agent.run.results import PassReport, ResourceResult, Result, postponed
from agent.run.sites import Site
from agent.waldur import pool, usages

log = logging.getLogger(__name__)

MODE = Mode.REPORT
AT_ONCE = 48


@dataclass
class Delivery:
    """One report under way. `errors` by resource; `told`: what Waldur took, by resource; `stop`: why it ends early."""

    site: Site
    planned: PlannedReport
    judgement: Judgement
    report: PassReport
    interrupted: Callable[[], bool] = lambda: False
    errors: dict[str, SiteAgentError] = field(default_factory=dict)
    told: dict[str, list[str]] = field(default_factory=dict)
    stop: SiteAgentError | None = None

    def done(self, action: ReportUsage | ReportUserUsage, error: SiteAgentError | None) -> None:
        """Into the report and the log; what is out of the ordinary into the journal, too."""
        outcome = Outcome(action, error)
        self.report.outcomes.append(outcome)
        log.debug("%s", action.render())
        if error is None:
            self.told.setdefault(action.resource, []).append(action.target())
        else:
            self.errors.setdefault(action.resource, error)
        if error is not None or any(lowered(action)):
            journal.record(self.site, MODE, [outcome])


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
    _conclude(delivery)


def _tell_month(delivery: Delivery, month: PlannedMonth, plans: Sequence[UsagePlan]) -> None:
    totals = [plan.totals for plan in plans if plan.totals]
    if not _tell_totals(delivery, month, totals):
        return
    shares = [share for plan in plans for share in plan.shares if share.resource not in delivery.errors]
    if shares:
        _tell_shares(delivery, month, shares)


def _tell_totals(delivery: Delivery, month: PlannedMonth, totals: Sequence[ReportUsage]) -> bool:
    """Whether the shares may follow. Of a closed month one resource goes first: Waldur may refuse all of them."""
    client = delivery.site.client

    def send(action: ReportUsage) -> None:
        usages.set_totals(client, action.resource, _amounts(action.after), month.date)

    for portion in _portions(totals, first=AT_ONCE if month.is_current else 1):
        if not _may_go_on(delivery):
            _leave(delivery, portion)
            continue
        for action, answer in pool.each(portion, send).items():
            error = answer if isinstance(answer, WaldurError) else None
            if error is not None and usages.is_backfill(error) and not month.is_current:
                _refused(delivery, month, error)
                return False
            _note_outage(delivery, error)
            delivery.done(action, error)
    return True


def _tell_shares(delivery: Delivery, month: PlannedMonth, shares: Sequence[ReportUserUsage]) -> None:
    ledger = _with_new_records(delivery, month, shares)
    links = delivery.planned.picture.links

    def send(action: ReportUserUsage) -> Mapping[str, WaldurError]:
        record = ledger.record(action.resource, action.component)
        if record is None:
            raise WaldurAnswerError(
                f"Waldur shows no {action.component} of resource {action.resource} in {action.month}, where its total "
                "was told: is Waldur's time zone another than `timezone`?",
                method="GET",
                path=usages.PATH,
            )
        return usages.set_users(delivery.site.client, record.uuid, _amounts(action.after), links, month.date)

    for portion in _portions(shares, first=AT_ONCE):
        if not _may_go_on(delivery):
            _leave(delivery, portion)
            continue
        for action, answer in pool.each(portion, send).items():
            error = answer if isinstance(answer, WaldurError) else _share_error(action, answer)
            _note_outage(delivery, error)
            delivery.done(action, error)


def _share_error(action: ReportUserUsage, refused: Mapping[str, WaldurError]) -> WaldurError | None:
    """One error for the users whose share Waldur refused; the others' were taken."""
    if not refused:
        return None
    first = next(iter(refused.values()))
    return WaldurError(
        f"{action.component} of {', '.join(sorted(refused))}: {first}",
        method=first.method,
        path=first.path,
        status=first.status,
        detail=first.detail,
    )


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


def _refused(delivery: Delivery, month: PlannedMonth, error: WaldurError) -> None:
    """A closed month: told once, and left alone for a day."""
    if delivery.planned.memory.refuse(month.month, datetime.now(UTC)):
        sentence = (
            f"Waldur takes no usage of {month.month} from this token any more ({error.detail}); "
            "`historical-usage` with a staff token does it"
        )
        log.info("offering %s: %s", delivery.site.offering.name, sentence)
        delivery.report.notes.append(sentence)


def _note_outage(delivery: Delivery, error: SiteAgentError | None) -> None:
    if error is not None and error.retryable and delivery.stop is None:
        delivery.stop = error


def _may_go_on(delivery: Delivery) -> bool:
    # Something is told in every pass, or a queue that is never empty would keep reports away.
    if delivery.stop is None and delivery.report.outcomes and delivery.interrupted():
        delivery.stop = PassUnfinished(
            "something more urgent waits, or the time is up: the rest is told next"
        )
    return delivery.stop is None


def _leave(delivery: Delivery, actions: Sequence[WaldurAction]) -> None:
    for action in actions:
        if isinstance(action, ReportUsage | ReportUserUsage) and delivery.stop is not None:
            delivery.errors.setdefault(action.resource, delivery.stop)


def _remember(delivery: Delivery) -> None:
    """The jobs that count up still, for the accounts that were told of; of the others what was known stays."""
    memory = delivery.planned.memory
    before = {name: dict(accounts) for name, accounts in memory.live.items()}
    held = {action for plan in delivery.judgement.held for action in plan.actions}
    for month in delivery.planned.months:
        kept = {plan.account for plan in month.plans if not held.isdisjoint(plan.actions)}
        memory.note_live(month.month, [j for j in report_plan.live_jobs(month) if j.account not in kept])
        known = before.get(str(month.month), {})
        memory.live[str(month.month)] |= {a: jobs for a, jobs in known.items() if a in kept}
    memory.keep(delivery.planned.memory_months)
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


def _portions(actions: Sequence, *, first: int) -> Iterator[Sequence]:  # type: ignore[type-arg]
    if actions:
        yield actions[:first]
    for start in range(first, len(actions), AT_ONCE):
        yield actions[start : start + AT_ONCE]


def _amounts(amounts: Amounts) -> list[tuple[str, str]]:
    return [(name, amount) for name, amount in amounts if amount is not None]
