# SPDX-License-Identifier: MIT
"""The reconcile loop, the only one: observe, plan, refine, decide, announce, apply, read back, tell.

A pass is a list of modes, and `walk` goes through it. A mode (`Mode`) overrides the steps in which it differs. What
must hold for every mode is done here, once: the pause is read once in a pass, a plan is decided on once, nothing is
carried out that the policy has not allowed, every outcome is in the journal before the next portion begins, and no
portion begins after an outage or after the time is up. A pass that does not apply ends each mode after its decision.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from agent.config.model import Mode as PassMode
from agent.core.actions import Action, Where
from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    NotApplied,
    PassUnfinished,
    SiteAgentError,
    StateError,
    WaldurError,
    WaldurLacks,
)
from agent.core.plans import Outcome
from agent.core.scope import EVERYTHING, PassScope
from agent.core.waldur_actions import WaldurAction
from agent.observability import logs
from agent.plan.policy.gate import Decision
from agent.plan.policy.rules import Why
from agent.run import gate, ownership
from agent.run.gate import UNBOUNDED_S, Pass, Planned
from agent.run.results import OrderResult, PassReport, ResourceResult, count, record
from agent.run.site import Site, effort_of
from agent.state import journal
from agent.state.store import kept_open
from agent.waldur import pool
from agent.waldur.actions import REQUESTS
from agent.waldur.client import Request
from backends.base import Forewarning

log = logging.getLogger(__name__)

REFINEMENTS_AT_MOST = 3
# What a line of the log about an action is found by.
LOGGED_IDS = ("order", "resource", "account", "user")

Facts = TypeVar("Facts")
Plan = TypeVar("Plan", bound=Planned)


@dataclass(frozen=True, slots=True)
class Portion:
    """Actions that are carried out and read back together."""

    actions: tuple[Any, ...]
    # The mode's own reference to their subjects.
    about: Any = None


class Work(Generic[Plan]):
    """One run of the loop: its plan, the decision on it, its outcomes, and an outage of the cluster."""

    def __init__(self, run: Pass, mode: Mode[Any, Plan], plan: Plan) -> None:
        self.run = run
        self.site = run.site
        self.report = run.report
        self.mode = mode
        self.outage: BackendError | None = None
        self.outcomes: list[Outcome] = []
        self._decided: frozenset[Action] = frozenset()
        self._has_begun = False
        self.decide(plan)

    def decide(self, plan: Plan) -> None:
        """Let the gate decide on a plan, and go on with the allowed part of it."""
        self.plan = plan
        self.decision: Decision = gate.decide(self.run, self.mode.key, plan)
        # A plan that was narrowed is decided once more: held plans are not reported twice.
        known = {each.id for each in self.report.held}
        refused = {each.action for each in self.report.refused}
        self.report.held += tuple(each for each in self.decision.held if each.id not in known)
        self.report.refused += tuple(each for each in self.decision.refused if each.action not in refused)
        unread = plan.snapshot.unread
        if unread and any(each.why is Why.INCOMPLETE for each in self.decision.refused):
            self.report.later = self.report.later or BackendUnavailable("; ".join(unread.values()))
        self._allowed = frozenset(self.decision.allowed)
        if (shown := self.run.shown) is not None:
            self._allowed = frozenset(a for a in self._allowed if self.mode.was_shown(a, shown))
        self._decided |= frozenset(plan.actions)

    def allows(self, action: Action) -> bool:
        """Return whether an action may happen: it was planned and allowed, or only reports how others ended."""
        return action in self._allowed or (
            action not in self._decided and action.where is Where.WALDUR and gate.may_report(self.run.rules)
        )

    @property
    def done(self) -> list[Action]:
        """Return the actions that are done; in a pass that does not apply, those that would be."""
        if not self.run.applies:
            return list(self.decision.allowed)
        return [outcome.action for outcome in self.outcomes if outcome.done]

    def send(self, actions: Iterable[WaldurAction]) -> dict[Action, WaldurError]:
        """Send the allowed ones of these actions to Waldur, several at a time. Return the errors by action. What the
        server lacks is neither done nor failed: it is not sent, and not noted.
        """
        client, requests = self.site.client, {**REQUESTS, **self.mode.requests}
        allowed = [
            action for action in actions if self.allows(action) and client.if_supported(action.feature)
        ]
        sent = pool.each(allowed, lambda action: requests[type(action)](client, action))
        answers = {
            action: answer
            for action, answer in sent.items()
            if not isinstance(answer, WaldurLacks) or client.if_supported(action.feature)
        }
        failed: dict[Action, WaldurError] = {
            action: answer for action, answer in answers.items() if isinstance(answer, WaldurError)
        }
        self.note([Outcome(action, failed.get(action)) for action in answers])
        return failed

    def carry_out(self, portion: Portion) -> Sequence[Outcome]:
        """Carry out a portion and note its outcomes. Raises SiteAgentError where nothing of it can have happened."""
        if self.outage is not None:
            raise self.outage
        if not self.mode.paces_itself:
            if self.run.is_late:
                raise PassUnfinished("the time of this pass is used up: the next one goes on")
            if self._has_begun and self.run.must_yield():
                raise PassUnfinished("this pass yields to more urgent work: the next one goes on")
        withheld = [action for action in portion.actions if not self.allows(action)]
        if withheld:
            raise AssertionError(f"not allowed by the policy: {withheld[0].render()}")
        try:
            self.run.reserve_journal()
        except StateError as error:
            raise PassUnfinished(str(error)) from error
        self._has_begun = True
        try:
            outcomes = list(self.mode.apply(portion.actions))
        except BackendError as error:
            self.outage = error
            raise
        self.note(outcomes)
        self.outage = next((o.error for o in outcomes if isinstance(o.error, BackendUnavailable)), None)
        return outcomes

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Add outcomes to the report, the journal and the log at once: a later step may be cut off."""
        self.outcomes += outcomes
        self.report.outcomes += outcomes
        journal.record(self.site, self.run.mode, outcomes, cause=self.mode.cause or self.run.cause)
        ownership.note_ended(self.site, outcomes)
        for outcome in outcomes:
            action, error = outcome.action, outcome.error
            ids = {name: value for name, value in journal.ids_of(action).items() if name in LOGGED_IDS}
            ids["action"] = type(action).__name__
            if error is None:
                level = logging.DEBUG if action.is_routine else logging.INFO
                log.log(level, "%s", action.render(), extra={**ids, "outcome": "done"})
            else:
                log.warning("failed: %s: %s", action.render(), error, extra={**ids, "outcome": "failed"})


class Mode(Generic[Facts, Plan]):
    """What a pass does of one kind, as eight steps with defaults: a mode overrides what differs."""

    # Names its held plans.
    key: str
    # How reports name a mode that may fail without ending the pass; empty where its error ends the pass.
    optional_name: ClassVar[str] = ""
    # Those of actions on Waldur that need something of this mode.
    requests: Mapping[type[WaldurAction], Request] = MappingProxyType({})
    # What the journal names as the reason, where that is not the pass.
    cause: str = ""
    # What an earlier mode must have left (`handed_on`): without it there is nothing to do.
    needs: ClassVar[type | None] = None
    # Whether only a pass over everything of the offering has anything for it.
    is_of_whole_passes: ClassVar[bool] = False
    # Whether it looks itself at the time, and at what is more urgent: a portion of it is a request or two.
    paces_itself: ClassVar[bool] = False
    # Actions of one portion.
    at_once: ClassVar[int] = 500
    # What is said of an action that has not happened, as it turned out afterwards.
    unseen: ClassVar[str] = "it is not there"

    def __init__(self, run: Pass) -> None:
        self.run = run
        self.site = run.site
        # What was done, with what could not be read back.
        self.outcomes: list[Outcome] = []
        # What is open while the mode is at work: a connection, a lock.
        self.open = ExitStack()

    @classmethod
    def each(cls, run: Pass) -> Iterable[Mode[Any, Any]]:
        """Return the modes that a pass walks through in the place of this class: one of it."""
        return [cls(run)]

    def observe(self) -> Facts | None:
        """Read what the plan needs, and change nothing; None where there is nothing for this mode to do. Raises
        SiteAgentError.
        """
        raise NotImplementedError

    def plan(self, facts: Facts) -> Plan:
        """Return what is to be done. Pure. Raises SiteAgentError where it cannot be known."""
        raise NotImplementedError

    def refine(self, facts: Facts, plan: Plan) -> Facts | None:
        """Return the facts with what the plan showed to be needed, None when nothing is. Raises SiteAgentError."""
        return None

    def announce(self, work: Work[Plan]) -> Plan | None:
        """Report what must be known first. Return the plan for fewer subjects where some fell out on the way, else
        None.
        """
        return None

    def portions(self, work: Work[Plan]) -> Iterable[Portion]:
        """Yield what is carried out and read back together: all that is allowed, except reports to Waldur."""
        allowed = [
            each for each in work.decision.allowed if work.allows(each) and each.where is not Where.WALDUR
        ]
        for first in range(0, len(allowed), self.at_once):
            yield Portion(tuple(allowed[first : first + self.at_once]))

    def apply(self, actions: Sequence[Any]) -> Sequence[Outcome]:
        """Carry out a portion. Return one outcome for each action that was tried."""
        return self.site.backend.apply(actions)

    def read_back(self, work: Work[Plan], portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Look again, and plan: what would be planned once more has not happened. Raises BackendError."""
        facts = self.observe()
        left = set() if facts is None else set(self.plan(facts).actions)
        self.outcomes += checked(outcomes, left, self.unseen)

    def tell(self, work: Work[Plan]) -> None:
        """Report the results to Waldur."""

    def failed(self, work: Work[Plan], portion: Portion, error: SiteAgentError) -> None:
        """Note a portion of which nothing can have happened, or that cannot be read back."""
        self.outcomes += [Outcome(action, error) for action in portion.actions]

    def conclude(self, error: SiteAgentError | None) -> None:
        """Report how a mode that runs in addition to others has ended; `error`: what ended it."""
        if error is not None:
            log.error("%s of offering %s: %s", self.optional_name, self.site.offering.name, error)
        self.add_to_report(error)

    def add_to_report(self, error: SiteAgentError | None) -> None:
        """Add to the report of the pass what ended this mode, and what failed of its actions."""
        report = self.run.report
        if error is not None:
            report.later = report.later or (error if error.retryable else None)
            report.problems += [] if isinstance(error, PassUnfinished) else [f"{self.optional_name}: {error}"]
        failed = [each for each in self.outcomes if each.error is not None]
        again = (each.error for each in failed if each.error is not None and each.error.retryable)
        report.later = report.later or next(again, None)
        # 409: the person's state has changed since then; the next pass reads it.
        faults = [
            o
            for o in failed
            if not (isinstance(o.error, WaldurError) and o.error.status == HTTPStatus.CONFLICT)
        ]
        if faults:
            first = faults[0]
            report.problems.append(
                f"{self.optional_name}: {len(faults)} of {len(self.outcomes)} actions failed, the first: "
                f"{first.action.line()}: {first.error}"
            )

    def leave(self, work: Work[Plan]) -> None:
        """Leave what later modes of the pass need (`Pass.leave`), by what has happened or would (`Work.done`)."""

    def leave_unplanned(self, error: SiteAgentError) -> None:
        """Leave what later modes need where this one could not be planned, in a pass that does not apply."""

    def shows(self, work: Work[Plan]) -> Sequence[Action]:
        """Return what a pass that does not apply shows to happen."""
        return work.decision.allowed

    def unplanned(self, plan: Plan) -> Sequence[OrderResult | ResourceResult]:
        """Return what cannot be planned now."""
        return ()

    def resume(self, plan: Plan) -> Plan:
        """Return a plan that a person was shown, to carry it out now. Raises PassUnfinished where that cannot be."""
        return plan

    def notes(self, plan: Plan) -> Sequence[str]:
        """Return what is printed of a plan in addition to its actions."""
        return ()

    def was_shown(self, action: Action, shown: Set[Action]) -> bool:
        """Return whether a person was shown this action, where only what was shown may be done."""
        return action in shown


def checked(done: Iterable[Outcome], left: Set[Action], unseen: str = Mode.unseen) -> Iterator[Outcome]:
    """Yield the outcomes of changes; what would be planned again (`left`) has not happened: NotApplied."""
    for outcome in done:
        error = outcome.error
        if error is None and outcome.action in left:
            error = NotApplied(f"{unseen}: {outcome.action.line()}")
        yield Outcome(outcome.action, error)


def walk(run: Pass, modes: Iterable[type[Mode[Any, Any]]]) -> None:
    """Run the modes of a pass, one after the other. What ends an optional mode is in the report; raises
    SiteAgentError where another one cannot go on.
    """
    for kind in modes:
        if kind.needs is not None and run.result(kind.needs) is None:
            continue
        if kind.is_of_whole_passes and not run.scope.is_everything:
            continue
        for mode in kind.each(run):
            if mode.optional_name:
                run_optional(run, mode)
            else:
                reconcile(run, mode)


def run_optional(run: Pass, mode: Mode[Any, Any]) -> None:
    """Run a mode that may fail without ending the pass; the report names what failed. It is not begun where nothing
    may be reported to Waldur.
    """
    if not gate.may_report(run.rules):
        return
    error = None
    try:
        reconcile(run, mode)
    except SiteAgentError as raised:
        error = raised
    if run.applies:
        mode.conclude(error)
    elif error is not None:
        run.report.notes.append(f"{mode.optional_name} cannot be planned: {error}")
        mode.leave_unplanned(error)


def reconcile(run: Pass, mode: Mode[Facts, Plan]) -> Work[Plan] | None:
    """Run the loop of a mode, as far as the policy allows, and only as far as its decision in a pass that does not
    apply. Return None where there is nothing to do. Raises SiteAgentError where nothing could be planned; the mode
    reports what fails after that.
    """
    with mode.open:
        given: Plan | None = run.given.get(type(mode))
        plan = plan_of(mode) if given is None else mode.resume(given)
        return None if plan is None else carry_out(run, mode, plan)


def plan_of(mode: Mode[Facts, Plan]) -> Plan | None:
    """Observe, plan and refine. Changes nothing. Raises SiteAgentError."""
    facts = mode.observe()
    if facts is None:
        return None
    plan = mode.plan(facts)
    refinements = 0
    while (more := mode.refine(facts, plan)) is not None:
        if refinements == REFINEMENTS_AT_MOST:
            raise PassUnfinished(
                "Waldur or the cluster changed with every refinement: the next pass tries again"
            )
        facts = more
        del plan  # two of them are tens of megabytes for thousands of resources
        plan, refinements = mode.plan(facts), refinements + 1
    return plan


def carry_out(run: Pass, mode: Mode[Any, Plan], plan: Plan) -> Work[Plan]:
    """Decide on a plan, and carry out the allowed part of it, portion by portion, in a pass that applies."""
    work = Work(run, mode, plan)
    if not run.applies:
        run.works.append(work)
        run.report.notes += (*mode.notes(plan), *work.decision.notes)
        mode.leave(work)
        return work
    if work.decision.allowed:
        run.reserve_journal()
    while (fewer := mode.announce(work)) is not None:
        work.decide(fewer)
    for portion in mode.portions(work):
        try:
            outcomes = work.carry_out(portion)
            mode.read_back(work, portion, outcomes)
        except (BackendError, PassUnfinished) as error:
            work.outage = work.outage or (error if isinstance(error, BackendError) else None)
            mode.failed(work, portion, error)
    mode.tell(work)
    gate.note_done(run, mode.key, work.decision, work.outcomes)
    mode.leave(work)
    return work


@contextmanager
def passing(  # noqa: PLR0913  what a caller may ask of a pass
    site: Site,
    mode: PassMode,
    *,
    scope: PassScope = EVERYTHING,
    subject: str = "",
    seconds: float = UNBOUNDED_S,
    must_yield: Callable[[], bool] = lambda: False,
    lock: Callable[[str], bool] = lambda _: True,
    clock: Callable[[], datetime] | None = None,
    applies: bool = True,
    is_recorded: bool = True,
) -> Iterator[Pass]:
    """Run a pass from its beginning to its record. A SiteAgentError of the body ends the pass and is in its report.
    `subject`: what records name, where that is not the scope.
    """
    report = PassReport(mode, site.offering.uuid, site.offering.name)
    with kept_open(site.state_dir):
        with logs.about(offering=site.offering.uuid, mode=mode), effort_of(site) as report.effort:
            run = Pass(
                site,
                mode,
                gate.rules_of(site),
                report,
                subject or str(scope),
                time.monotonic() + seconds,
                must_yield,
                scope=scope,
                lock=lock,
                clock=clock,
                applies=applies,
            )
            try:
                yield run
            except SiteAgentError as error:
                report.error = error
        if isinstance(site.backend, Forewarning):
            report.notes += site.backend.warnings()
        if is_recorded and applies:
            record(site.state_dir, report, subject=run.subject)
        elif report.outcomes:
            count(site.state_dir, report)
