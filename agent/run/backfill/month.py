# SPDX-License-Identifier: MIT
"""One month of history: what the cluster counts for it now against what Waldur has, and the difference told.

As a report of that month (`report_facts`, `plan.usage`, `report_apply`), with other rules: only what was used is told
unless `reconcile_stale` is wished for (`plan.history`), and every resource that could not be told of is named. What
would lower a figure is held until somebody says that it is meant: a cluster that has purged a part of a month counts
less than it did. A month of which the cluster names nothing is not done. Safe to repeat: what Waldur has is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from agent.config.model import Mode
from agent.core.account_names import fold
from agent.core.actions import Action, only
from agent.core.errors import SiteAgentError
from agent.core.model import Part
from agent.core.periods import Month, attribution
from agent.core.policy import UsageDecreases
from agent.core.usage_actions import ReportUserUsage, UsageAction
from agent.plan.policy.gate import Decision
from agent.plan.usage import history as planner
from agent.plan.usage import planning as usage_planner
from agent.plan.usage.history import Choice
from agent.plan.usage.planning import TAKING, UsagePlan
from agent.run import engine, gate
from agent.run.backfill.results import Ending, Line, Mark, MonthOutcome
from agent.run.backfill.staff import words
from agent.run.engine import Steps
from agent.run.results import PassReport, Result
from agent.run.site import Site, effort_of
from agent.run.usage import facts as report_facts
from agent.run.usage.facts import MonthPicture, OfferingPicture
from agent.run.usage.planning import PlannedMonth, PlannedReport
from agent.run.usage.submission import Submission
from agent.state.reports import Memory

MODE = Mode.REPORT
CAUSE = "historical-usage"
NAMED_AT_MOST = 10
HOW_TO_LOWER = "--allow-decreases sends the smaller figures"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of every month. It travels in messages, so no secret is in it. `accounts`: these resources only,
    by backend id. `allow_decreases`: what gets less is told, too, as it is with `reconcile_stale`.
    """

    accounts: tuple[str, ...] = ()
    with_users: bool = True
    reconcile_stale: bool = False
    dry_run: bool = False
    staff_check: bool = True
    allow_decreases: bool = False

    @property
    def may_lower(self) -> bool:
        return self.allow_decreases or self.reconcile_stale

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "accounts": list(self.accounts)}


def wish_from(document: Mapping[str, Any]) -> Wish:
    """What `as_json` wrote. Raises TypeError for keys that this version does not know."""
    return Wish(**{**document, "accounts": tuple(document.get("accounts", ()))})


@dataclass
class Book:
    """The lines and counts of a month while it is loaded. `is_unknown`: the cluster told of nothing. `again`: why the
    rest has to be tried once more.
    """

    site: Site
    month: Month
    wish: Wish
    lines: list[Line] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    resources: int = 0
    told: set[str] = field(default_factory=set)
    lowered: int = 0
    left_out: int = 0
    held: list[str] = field(default_factory=list)
    is_unknown: bool = False
    again: SiteAgentError | None = None

    @property
    def ending(self) -> Ending:
        """The gravest of what there is to say."""
        if self.again:
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


def look(site: Site, wish: Wish) -> OfferingPicture:
    """What does not depend on the month: resources, users, accounts. Raises SiteAgentError."""
    return report_facts.offering(site, with_users=wish.with_users)


def load_month(
    site: Site,
    month: Month,
    wish: Wish,
    *,
    interrupted: Callable[[], bool] = lambda: False,
    picture: Callable[[], OfferingPicture] | None = None,
) -> MonthOutcome:
    """Raises no SiteAgentError: what went wrong stands in the outcome. When `interrupted`, no new portion is begun.
    `picture`: as `look`, for whoever has one already.
    """
    book = Book(site, month, wish)
    with effort_of(site) as effort:
        try:
            _load(book, picture() if picture else look(site, wish), interrupted)
        except SiteAgentError as error:
            if error.retryable:
                book.again = error
            else:
                book.fail(words(error))
    return MonthOutcome(
        month=str(month),
        ending=book.ending,
        resources=book.resources,
        told=len(book.told),
        lowered=book.lowered,
        left_out=book.left_out,
        held=tuple(book.held),
        failures=tuple(book.failures),
        lines=tuple(book.lines),
        commands=effort.commands.total(),
        requests=effort.requests.total(),
        seconds=round(effort.seconds, 3),
        error=book.again,
    )


def _load(book: Book, picture: OfferingPicture, interrupted: Callable[[], bool]) -> None:
    choice = planner.choose(picture.resources, book.wish.accounts)
    for account in choice.unknown:
        book.say(Mark.WARNING, f"no resource of the offering has the backend id {account}: it is passed over")
    if not choice.active:
        book.say(Mark.INFO, f"No active resources found for offering, skipping month: {_no_resources(book)}")
        return
    book.resources = len(choice.active)
    book.say(Mark.FOUND, f"Found {book.resources} active resources to process")
    if not picture.components:
        names = ", ".join(book.site.offering.components) or "none"
        book.fail(
            f"Waldur's offering takes usage of no configured component ({names}): run load-components, and look at "
            "`accounting_type`"
        )
        return
    for name in picture.missing:
        book.say(Mark.WARNING, f"Waldur's offering has no component {name}: run load-components")
    seen = report_facts.month(book.site, book.month, with_users=book.wish.with_users)
    choice = planner.with_usage(choice, seen.usage, every=book.wish.reconcile_stale)
    active = {resource.uuid for resource in choice.active}
    book.left_out = sum(resource.uuid not in active for resource in choice.told)
    if not _has_something(book, picture, choice, seen):
        return
    book.say(Mark.PLAN, f"Processing usage data for {choice.counted} accounts")
    planned = _planned(book, picture, choice, seen)
    _tell(book, planned, interrupted)
    if book.again is None:
        if not book.told and not book.failures and not book.held:
            book.say(Mark.INFO, f"Waldur has all usage of {book.month} already")
        rest = f", {len(book.failures)} failed" if book.failures else ""
        rest += f", {len(book.held)} held" if book.held else ""
        book.say(Mark.DONE, f"Completed processing {book.month} ({book.resources} resources){rest}")


def _no_resources(book: Book) -> str:
    whose = " among those that were asked for" if book.wish.accounts else ""
    return f"none of its resources{whose} is OK in Waldur and has a backend_id"


def _has_something(book: Book, picture: OfferingPicture, choice: Choice, seen: MonthPicture) -> bool:
    """Whether the cluster has told of this month, and of this offering."""
    picture.snapshot.require(Part.ACCOUNTS)
    usage = seen.usage
    is_foreign = planner.is_foreign(picture.resources, usage, picture.snapshot.accounts)
    if choice.counted or (book.wish.reconcile_stale and usage.records and not is_foreign):
        return True
    book.is_unknown = is_foreign or not usage.records
    account = choice.active[0].backend_id
    query = report_facts.query(book.site, book.month)
    command = report_facts.reader(book.site).usage_command(query, fold(account))
    if not usage.records:
        why = "the cluster names no job at all in that month"
    elif is_foreign and book.wish.reconcile_stale:
        why = (
            "the cluster has none of the offering's accounts, so nothing is set to zero: is it the right one?"
        )
    else:
        why = "the cluster names no job of these accounts in that month"
    book.say(
        Mark.INFO,
        f"No usage data found for {book.month}: {why}; backend ids have to be names of accounts; by hand: `{command}`",
    )
    return False


def _planned(book: Book, picture: OfferingPicture, choice: Choice, seen: MonthPicture) -> PlannedReport:
    site, wish = book.site, book.wish
    components = picture.components
    if wish.reconcile_stale:
        lacking = report_facts.tracked(site, components, seen.usage)
        for name, tres in lacking.items():
            book.say(
                Mark.WARNING, f"component {name}: the cluster does not track {tres}; it is left as it is"
            )
        components = tuple(c for c in components if c.name not in lacking)
    rules = replace(
        report_facts.rules(site, picture, components, with_users=wish.with_users),
        # Who asks for stale records to be reconciled says that no usage is none.
        known=frozenset(fold(resource.backend_id) for resource in choice.told),
        with_zeros=False,
    )
    plans = usage_planner.plan_month(choice.told, seen.usage, seen.ledger, rules)
    kept = plans if wish.reconcile_stale else [planner.without_zeros(plan) for plan in plans]
    now = datetime.now(site.zone)
    month = PlannedMonth(
        book.month,
        attribution(book.month, site.zone),
        seen,
        tuple(kept),
        is_current=Month.of(now) == book.month,
    )
    return PlannedReport(picture, (month,), Memory())


def _tell(book: Book, planned: PlannedReport, interrupted: Callable[[], bool]) -> None:
    """Tell Waldur of the month. What would lower a figure is held, unless that is wished for; nothing is written down
    for `approve`: whoever loads the month says so with an option.
    """
    site, wish = book.site, book.wish
    (month,) = planned.months
    decreases = UsageDecreases.ALLOW if wish.may_lower else UsageDecreases.HOLD
    _name_skipped(book, month.plans)
    with engine.passing(site, MODE, is_recorded=False) as run:
        run.rules = replace(run.rules, usage_decreases=decreases)
        run.cause, run.holds = CAUSE, False
        submission = Submission(site, lambda: datetime.now(UTC), interrupted)
        steps = Steps(
            key=MODE,
            observe=lambda: planned,
            plan=lambda facts: facts,
            announce=lambda work: _announce(book, planned, work.decision),
            portions=submission.portions,
            apply=submission.apply,
            read_back=submission.note,
            failed=submission.leave,
            tell=submission.tell,
        )
        if wish.dry_run:
            decision = gate.foresee(site, run.rules, MODE, planned)
            _announce(book, planned, decision)
            for action in only(UsageAction, decision.allowed):
                _say_told(book, action, done=False)
        else:
            engine.reconcile(run, steps)
    if not wish.dry_run:
        _conclude(book, planned, run.report)


def _announce(book: Book, planned: PlannedReport, decision: Decision) -> None:
    """What the operator should know before anything is told."""
    for held in decision.held:
        book.held.append(held.reason)
        book.say(Mark.WARNING, f"held: {held.reason}. Waldur keeps what it has; {HOW_TO_LOWER}")
    _name_strangers(book, decision.allowed, planned)
    for sentence in sorted({refused.sentence for refused in decision.refused}):
        book.fail(f"nothing is told: {sentence}")


def _conclude(book: Book, planned: PlannedReport, report: PassReport) -> None:
    for action in only(UsageAction, (outcome.action for outcome in report.outcomes if outcome.done)):
        _say_told(book, action, done=True)
    if planned.memory.refused:
        book.fail(
            f"Waldur takes no usage of {book.month}, which is closed, from this token: use the token of a staff user"
        )
    if report.error is not None:
        book.fail(words(report.error))
    for resource in report.resources if report.error is None else ():
        if resource.error is not None and resource.result is not Result.RETRY:
            book.fail(f"{resource.account}: {words(resource.error)}")
    book.again = report.retryable_error


def _name_skipped(book: Book, plans: tuple[UsagePlan, ...]) -> None:
    for plan in plans:
        if plan.skipped and plan.needs_person:
            book.fail(f"{plan.account}: {plan.skipped}")
        elif plan.skipped:
            heal = "" if plan.resource.state in TAKING else "; set it OK and load the month again"
            book.say(Mark.WARNING, f"{plan.account}: {plan.skipped}{heal}")


def _name_strangers(book: Book, allowed: Iterable[Action], planned: PlannedReport) -> None:
    """Users whom Waldur will know by their name only."""
    told = {
        name
        for action in only(ReportUserUsage, allowed)
        for name, amount in action.after
        if amount is not None and Decimal(amount)
    }
    linked = {fold(name) for name in planned.picture.links}
    strangers = sorted(name for name in told if fold(name) not in linked)
    if strangers:
        more = f" and {len(strangers) - NAMED_AT_MOST} more" if len(strangers) > NAMED_AT_MOST else ""
        book.say(
            Mark.INFO,
            f"without an offering user in Waldur, told by name only: {', '.join(strangers[:NAMED_AT_MOST])}{more}",
        )


def _say_told(book: Book, action: UsageAction, *, done: bool) -> None:
    """`done` or, in a dry run, only planned."""
    book.told.add(action.resource)
    verb = "Submitted" if done else "[DRY-RUN] Would submit"
    if action.is_total:
        book.say(Mark.SENT, f"{verb} usage for resource {action.account}: {_amounts(action)}")
    else:
        what = f"usage of users for resource {action.account}, {action.components[0]}"
        book.say(Mark.SENT, f"{verb} {what}: {_amounts(action)}")
    for sentence in _decreases(action, "lowered" if done else "would be lowered"):
        book.lowered += 1
        book.say(Mark.WARNING, sentence)


def _amounts(action: UsageAction) -> str:
    """`{'cpu': 15000.00, 'mem': 25000.00}`, as the reference prints it."""
    return "{" + ", ".join(f"{name!r}: {amount}" for name, amount in action.after) + "}"


def _decreases(action: UsageAction, verb: str) -> Iterator[str]:
    for name, held, amount in action.decreases():
        yield f"{action.account} in {action.month}: {name} {verb} from {held} to {amount}"
