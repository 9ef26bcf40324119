# SPDX-License-Identifier: MIT
"""The reconcile loop, the only one: observe, plan, refine, decide, announce, apply, read back, tell.

A mode defines the steps (`Steps`). What must hold for every mode is done here, once: the pause is read once in a pass,
a plan is decided on once, nothing is carried out that the policy has not allowed, every outcome is in the journal
before the next portion begins, and no portion begins after an outage or after the time is up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agent.config.model import Mode
from agent.core.actions import Action
from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    PassUnfinished,
    SiteAgentError,
    StateError,
    WaldurError,
    WaldurLacks,
)
from agent.core.plans import Outcome
from agent.core.waldur_actions import WaldurAction
from agent.observability import logs
from agent.plan.policy.gate import Decision
from agent.plan.policy.rules import Why
from agent.run import gate, ownership
from agent.run.gate import UNBOUNDED_S, Pass, Planned
from agent.run.record import count, record
from agent.run.results import PassReport
from agent.run.site import Site, effort_of
from agent.state import journal
from agent.waldur import pool
from agent.waldur.client import WaldurClient

log = logging.getLogger(__name__)

REFINEMENTS_AT_MOST = 3
# What a line of the log about an action is found by.
LOGGED_IDS = ("order", "resource", "account", "user")

Request = Callable[[WaldurClient, Any], Any]
Facts = TypeVar("Facts")
Plan = TypeVar("Plan", bound=Planned)


@dataclass(frozen=True, slots=True)
class Portion:
    """Actions that are carried out and read back together; `about`: the mode's own reference to their subjects."""

    actions: tuple[Any, ...]
    about: Any = None


class Work(Generic[Plan]):
    """One run of the loop: its plan, the decision on it, and an outage of the cluster."""

    def __init__(self, run: Pass, steps: Steps[Any, Plan], plan: Plan) -> None:
        self.run = run
        self.site = run.site
        self.report = run.report
        self.steps = steps
        self.outage: BackendError | None = None
        self._judged: frozenset[Action] = frozenset()
        self._has_begun = False
        self.decide(plan)

    def decide(self, plan: Plan) -> None:
        """Let the gate decide on a plan, and go on with the allowed part of it."""
        self.plan = plan
        self.decision: Decision = gate.decide(self.run, self.steps.key, plan)
        # A plan that was narrowed is decided once more: held plans are not reported twice.
        known = {each.id for each in self.report.held}
        refused = {each.action for each in self.report.refused}
        self.report.held += tuple(each for each in self.decision.held if each.id not in known)
        self.report.refused += tuple(each for each in self.decision.refused if each.action not in refused)
        unread = plan.snapshot.unread
        if unread and any(each.why is Why.INCOMPLETE for each in self.decision.refused):
            self.report.later = self.report.later or BackendUnavailable("; ".join(unread.values()))
        self._allowed = frozenset(self.decision.allowed)
        self._judged |= frozenset(plan.actions)

    def allows(self, action: Action) -> bool:
        """Return whether an action may happen: it was planned and allowed, or only reports how others ended."""
        return action in self._allowed or (
            action not in self._judged and isinstance(action, WaldurAction) and gate.may_tell(self.run.rules)
        )

    def send(self, actions: Iterable[WaldurAction]) -> dict[Action, WaldurError]:
        """Send the allowed ones of these actions to Waldur, several at a time. Return the errors by action. What the
        server lacks is neither done nor failed: it is not sent, and not noted.
        """
        client, requests = self.site.client, self.steps.requests
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
        if self.run.is_late:
            raise PassUnfinished("the time of this pass is used up: the next one goes on")
        if self._has_begun and self.run.makes_way():
            raise PassUnfinished("this pass makes way for something more urgent: the next one goes on")
        withheld = [action for action in portion.actions if not self.allows(action)]
        if withheld:
            raise AssertionError(f"not allowed by the policy: {withheld[0].render()}")
        try:
            self.run.reserve_journal()
        except StateError as error:
            raise PassUnfinished(str(error)) from error
        self._has_begun = True
        try:
            outcomes = list(self.steps.apply(portion.actions))
        except BackendError as error:
            self.outage = error
            raise
        self.note(outcomes)
        self.outage = next((o.error for o in outcomes if isinstance(o.error, BackendUnavailable)), None)
        return outcomes

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Add outcomes to the report, the journal and the log at once: a later step may be cut off."""
        self.report.outcomes += outcomes
        journal.record(self.site, self.run.mode, outcomes, cause=self.run.cause)
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


def nothing_to_refine(_facts: Any, _plan: Any) -> None:
    """Refine nothing."""


def nothing_to_announce(_work: Any) -> None:
    """Announce nothing."""


def nothing_to_tell(_work: Any) -> None:
    """Tell Waldur nothing in the end."""


@dataclass(frozen=True, slots=True)
class Steps(Generic[Facts, Plan]):
    """What a mode does in each step of the loop; `key` names its held plans and its place in logs.

    `refine`: return the facts with what the plan showed to be needed, None when nothing is. `announce`: tell Waldur
    what it must know first; return the plan for fewer subjects where some fell out on the way, else None. `apply`:
    return one outcome for each action of a portion. `read_back`: check whether what was carried out is there now.
    `failed`: note a portion of which nothing can have happened. `tell`: tell Waldur the results. `requests`: the
    request of each action.
    """

    key: str
    observe: Callable[[], Facts]
    plan: Callable[[Facts], Plan]
    apply: Callable[[Sequence[Any]], Sequence[Outcome]]
    portions: Callable[[Work[Plan]], Iterable[Portion]]
    read_back: Callable[[Work[Plan], Portion, Sequence[Outcome]], None]
    failed: Callable[[Work[Plan], Portion, SiteAgentError], None]
    tell: Callable[[Work[Plan]], None]
    refine: Callable[[Facts, Plan], Facts | None] = nothing_to_refine
    announce: Callable[[Work[Plan]], Plan | None] = nothing_to_announce
    requests: Mapping[type[WaldurAction], Request] = field(default_factory=dict)


def only_telling(
    key: str,
    observe: Callable[[], Facts],
    plan: Callable[[Facts], Plan],
    tell: Callable[[Work[Plan]], None],
    requests: Mapping[type[WaldurAction], Request],
) -> Steps[Facts, Plan]:
    """Return the steps of a mode that tells Waldur something and changes nothing on the cluster."""
    return Steps(
        key=key,
        observe=observe,
        plan=plan,
        apply=lambda _actions: (),
        portions=lambda _work: (),
        read_back=lambda _work, _portion, _outcomes: None,
        failed=lambda _work, _portion, _error: None,
        tell=tell,
        requests=requests,
    )


def reconcile(run: Pass, steps: Steps[Facts, Plan]) -> Work[Plan]:
    """Run the loop of a mode, as far as the policy allows. Raises SiteAgentError where nothing could be planned; the
    mode reports what fails after that.
    """
    return carry_out(run, steps, plan_of(steps))


def plan_of(steps: Steps[Facts, Plan]) -> Plan:
    """Observe, plan and refine. Changes nothing. Raises SiteAgentError."""
    facts = steps.observe()
    plan = steps.plan(facts)
    refinements = 0
    while (more := steps.refine(facts, plan)) is not None:
        if refinements == REFINEMENTS_AT_MOST:
            raise PassUnfinished(
                "Waldur or the cluster changed with every refinement: the next pass tries again"
            )
        facts = more
        del plan  # two of them are tens of megabytes for thousands of resources
        plan, refinements = steps.plan(facts), refinements + 1
    return plan


def carry_out(run: Pass, steps: Steps[Any, Plan], plan: Plan) -> Work[Plan]:
    """Decide on a plan and carry out the allowed part of it, portion by portion."""
    work = Work(run, steps, plan)
    if work.decision.allowed:
        run.reserve_journal()
    while (fewer := steps.announce(work)) is not None:
        work.decide(fewer)
    for portion in steps.portions(work):
        try:
            outcomes = work.carry_out(portion)
            steps.read_back(work, portion, outcomes)
        except (BackendError, PassUnfinished) as error:
            work.outage = work.outage or (error if isinstance(error, BackendError) else None)
            steps.failed(work, portion, error)
    steps.tell(work)
    gate.note_done(run, steps.key, work.decision, run.report.outcomes)
    return work


@contextmanager
def passing(
    site: Site,
    mode: Mode,
    *,
    subject: str = "",
    seconds: float = UNBOUNDED_S,
    makes_way: Callable[[], bool] = lambda: False,
    is_recorded: bool = True,
) -> Iterator[Pass]:
    """Run a pass from its beginning to its record. A SiteAgentError of the body ends the pass and is in its report."""
    report = PassReport(mode, site.offering.uuid, site.offering.name)
    with logs.about(offering=site.offering.uuid, mode=mode), effort_of(site) as report.effort:
        until_s = time.monotonic() + seconds
        run = Pass(site, mode, gate.rules_of(site), report, subject, until_s, makes_way)
        try:
            yield run
        except SiteAgentError as error:
            report.error = error
    if is_recorded:
        record(site.state_dir, report, subject=subject)
    elif report.outcomes:
        count(site.state_dir, report)
