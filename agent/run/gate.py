# SPDX-License-Identifier: MIT
"""The gate between plan and apply: decides with the remembered state what of a plan may be applied.

`decide` is for a pass that goes on to apply: it writes down what is held and what the rest costs people. `decide_dry`
is for `plan` and `drift` and writes nothing. A hold that cannot be written down is still a hold; a cost that cannot be
written down is not borne.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from agent.config.model import Mode, Offering
from agent.core.account_names import fold
from agent.core.actions import Action, Effect, ObjectKind, Where, objects_ended, objects_made
from agent.core.errors import StateError, StateUnwritable
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.core.policy import SHORT_ID, Charge, JournalFailures, PolicyMode, PolicyRules
from agent.core.scope import EVERYTHING, PassScope
from agent.plan.policy.gate import (
    Decision,
    EarlierPlans,
    HeldPlan,
    WaitingPlan,
    accounts_not_ours,
    action_key,
    lowered_accounts,
    plan_id,
)
from agent.plan.policy.gate import decide as decide_on
from agent.plan.policy.rules import PolicyContext, Why
from agent.run import ownership
from agent.run.results import PassReport
from agent.run.site import Site
from agent.state import charges, empty_answers, held_plans, joined, journal, pauses
from agent.state.held_plans import HeldPlans, HeldRow, HoldResult
from agent.state.hints import SKIPPED, Skipped
from agent.state.store import Source, Store, reading, stamp
from backends.usernames import nss

log = logging.getLogger(__name__)

UNBOUNDED_S = float("inf")
Left = TypeVar("Left")

SHOWN = 3
# Of what is skipped, for `status`.
LINES_AT_MOST = 200
# Where users are added to accounts and groups; homes look at uids themselves.
JOINED = frozenset({Where.CLUSTER, Where.DIRECTORY})


class Planned(Protocol):
    """The result of a mode's planner."""

    @property
    def actions(self) -> Sequence[Action]:
        """In the order in which they must happen; equal ones once."""
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The state of the cluster that the plan was made for."""
        ...

    @property
    def context(self) -> PolicyContext:
        """What the policy must know in addition to the cluster's state."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether it is about everything of the offering, so that a held plan which it lacks is gone."""
        ...


class Decided(Protocol):
    """A mode of a pass, with its plan and the decision on it."""

    plan: Any
    decision: Decision
    mode: Any


@dataclass(slots=True)
class Pass:
    """One pass over an offering, of one or several modes: the rules as they were when it began, its end, its report."""

    site: Site
    mode: Mode
    rules: PolicyRules
    report: PassReport
    # The order, resources or projects that it is about, empty for everything.
    subject: str = ""
    until_s: float = UNBOUNDED_S
    # Whether something more urgent waits.
    must_yield: Callable[[], bool] = lambda: False
    # What the journal names as the reason where it is no pass.
    cause: str = ""
    # Whether what is held is written down for `approve`; not where whoever started the pass decides with an option.
    holds: bool = True
    # The subjects by kind.
    scope: PassScope = EVERYTHING
    clock: Callable[[], datetime] | None = None
    began_s: float = field(default_factory=time.monotonic)
    # Takes names such as `periodic_limits:UUID`; what is taken is left to its holder.
    lock: Callable[[str], bool] = lambda _: True
    # Whether the modes go on after their decisions.
    applies: bool = True
    # Where a person was shown a plan, all that may be done of it.
    shown: frozenset[Action] | None = None
    # The plans of what was shown, by the class of their mode.
    given: Mapping[type, Any] = field(default_factory=dict)
    # The decided modes of a pass that does not apply.
    works: list[Decided] = field(default_factory=list)
    _left: dict[type, Any] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid4().hex)

    def now(self) -> datetime:
        """Return the time in the zone of the billing months."""
        return self.clock() if self.clock else datetime.now(self.site.zone)

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.until_s

    def leave(self, result: object) -> None:
        """Leave something for the modes after this one; they ask for it by its class (`result`)."""
        self._left[type(result)] = result

    def result(self, kind: type[Left]) -> Left | None:
        """Return what an earlier mode has left, None where none has."""
        found: Left | None = self._left.get(kind)
        return found

    def reserve_journal(self) -> None:
        """See to it that what is done next can be written down, where the rules want that. Raises StateError."""
        if self.rules.journal_failures is JournalFailures.STOP:
            journal.reserve(self.site.state_dir)


def rules_of(site: Site) -> PolicyRules:
    """Return the rules of the site's offering, with a pause by command."""
    return rules_for(site.offering, site.state_dir)


def rules_for(offering: Offering, state_dir: Path) -> PolicyRules:
    """Return the offering's rules, with a pause by command. Where it is unknown whether it is paused, it is."""
    rules = offering.policy
    try:
        note = pauses.pause_note(state_dir, offering)
    except StateError as error:
        note = f"perhaps: {error}"
    return replace(rules, paused=True, paused_why=note) if note and not rules.paused else rules


def may_report(rules: PolicyRules) -> bool:
    """Return whether anything may be reported to Waldur: not in a pause, and not in a mode that only observes."""
    return not reason_to_report_nothing(rules)


def reason_to_report_nothing(rules: PolicyRules) -> str:
    """Return why nothing may be reported to Waldur, empty where reports may go."""
    if rules.paused:
        return f"the offering is paused {rules.paused_why}"
    return f"mode {rules.mode}" if rules.mode is PolicyMode.OBSERVE else ""


def unknown_usage(rules: PolicyRules, plan: Planned) -> frozenset[str]:
    """Return the accounts with a lowered limit whose used amount was not asked for: the decision needs it."""
    return lowered_accounts(plan.actions, plan.snapshot, rules, plan.context)


def decide_dry(
    site: Site, rules: PolicyRules, key: str, plan: Planned, *, after: Sequence[Decision] = ()
) -> Decision:
    """Return what the policy would do with this plan now. Writes nothing. Raises StateError.

    `after`: what it would do with the plans that come before this one in the same pass: their costs count.
    """
    question = _Question(site, rules, key, plan, plan.snapshot, plan.context, tuple(after))
    return question.decided(site.state_dir)


def decide(run: Pass, key: str, plan: Planned) -> Decision:
    """Return what of this plan may be applied now; held plans are written down and logged once.

    What the past has cost people is read, and what this plan costs them is written, in one transaction: two passes at
    once do not both find room in one budget. Raises StateError where it is unknown what is paused or approved.
    """
    site = run.site
    if not run.applies:
        after = [work.decision for work in run.works]
        return decide_dry(site, run.rules, key, plan, after=after)
    if not run.holds:
        return decide_dry(site, run.rules, key, plan)
    if _is_idle(site, key, plan):
        return Decision()
    question = _Question(site, run.rules, key, plan, _looked_at(run, plan), plan.context)
    if not any(action.costs for action in plan.actions):
        with reading(site.state_dir) as db:
            decision = question.decided(db)
            if not _has_news(site, key, decision, plan) and held_plans.is_clear(db, site.offering, key):
                return decision
        return _written_down(run, key, plan, decision, site.state_dir)
    try:
        with Store(site.state_dir).write() as db:
            held_plans.drop_copied_back(db)
            charges.forget_old(db, datetime.now(UTC))
            decision = question.decided(db)
            _reserve(run, key, decision.charges, db)
            for approved, spent in decision.approved_charges.items():
                _reserve(run, key, spent, db, approved)
            return _written_down(run, key, plan, decision, db)
    except StateUnwritable as error:
        why = f"what it costs people cannot be written down: {error}"
        decision = replace(question, context=replace(plan.context, unrecorded=why)).decided(site.state_dir)
        return _written_down(run, key, plan, decision, site.state_dir)


def _is_idle(site: Site, key: str, plan: Planned) -> bool:
    """Return whether there is nothing to decide on: no action, no account that was looked at, and nothing that waits.
    Raises StateError.
    """
    if plan.actions or plan.snapshot.accounts or plan.context.waldur_is_empty:
        return False
    with reading(site.state_dir) as db:
        return held_plans.is_clear(db, site.offering, key)


def note_done(run: Pass, key: str, decision: Decision, outcomes: Iterable[Outcome]) -> None:
    """Write down which approved actions are done: an approval is for one act, and the same again is held again."""
    approved = {action for each in decision.released if not each.figures for action in each.actions}
    if done := {action_key(o.action) for o in outcomes if o.done and o.action in approved}:
        HeldPlans(run.site.state_dir, run.site.offering, key).approvals.note_done(done)


def are_held_apart(site: Site, key: str) -> bool:
    """Return whether several plans wait that no pass over everything has seen together: events bring them one by one,
    and it makes one of what belongs together. False where that is unknown.
    """
    try:
        held = HeldPlans(site.state_dir, site.offering, key)
        approved = {each.plan for each in held.approvals.open()}
        return sum(each.is_apart and each.id not in approved for each in held.waiting()) > 1
    except StateError:
        return False


def is_known(run: Pass, key: str, plan: Planned) -> bool:
    """Return whether what a pass saw may replace what was known: an answer that is empty by mistake must not. Raises
    StateError.
    """
    return not plan.context.waldur_is_empty or empty_answers.is_believed(
        run.site.state_dir, run.site.offering.uuid, key
    )


@dataclass(frozen=True, slots=True)
class _Question:
    """A plan to be decided on."""

    site: Site
    rules: PolicyRules
    key: str
    plan: Planned
    # With what a person has to know.
    snapshot: Snapshot
    context: PolicyContext
    # What was decided before it.
    after: tuple[Decision, ...] = ()

    def decided(self, source: Source) -> Decision:
        """Decide with the approvals and the costs so far, with what waits already, and with whose the accounts are.
        Raises StateError.
        """
        site, actions = self.site, self.plan.actions
        leaving = {thing.account for thing in objects_ended(actions, ObjectKind.MEMBER)}
        cluster, now = site.backend.cluster, datetime.now(UTC)
        with reading(source) as db:
            earlier = _earlier(HeldPlans(db, site.offering, self.key), self.plan)
            history = charges.history(db, cluster, now)
            history = replace(history, joined=joined.of_accounts(db, cluster, leaving, now))
            known = ownership.known(site, self.snapshot, self.context, db)
        for each in self.after:
            history = history.with_costs(each.charges, each.approved_charges.values())
        context = replace(self.context, system_users=_system_users(actions))
        return decide_on(actions, self.snapshot, self.rules, earlier, context, history, known)


def _earlier(held: HeldPlans, plan: Planned) -> EarlierPlans:
    """Return what people have approved, and what waits. Raises StateError."""
    found = held.approvals.open()
    approved = {each.plan for each in found}
    # Figures that get less are judged anew: what was approved of them is for no smaller ones.
    waiting = [each for each in held.waiting() if not each.figures and (each.is_lasting or not plan.is_whole)]
    apart = [each for each in waiting if each.is_apart and each.id not in approved] if plan.is_whole else []
    known = [
        WaitingPlan(each.id, each.scope, each.reason, each.keys) for each in waiting if each not in apart
    ]
    return EarlierPlans(
        approved={each.plan: each.open_keys for each in found},
        waiting=(*_joined(apart), *known),
        figures={each.plan: each.figures for each in found if each.figures},
        sees_all=plan.is_whole,
    )


def _looked_at(run: Pass, plan: Planned) -> Snapshot:
    """Return the plan's snapshot, with what accounts have that a person has to be asked about. Raises StateError."""
    site, snapshot = run.site, plan.snapshot
    if not any(action.changed_account and action.effect is not Effect.TELL for action in plan.actions):
        return snapshot
    known = ownership.known(site, snapshot, plan.context, site.state_dir)
    accounts = accounts_not_ours(plan.actions, snapshot, run.rules, plan.context, known)
    return ownership.looked_at(site, snapshot, accounts)


def _sees_offering(key: str, plan: Planned) -> bool:
    """Return whether a plan is about all that Waldur names of the offering."""
    return plan.is_whole and key == Mode.MEMBERSHIP_SYNC


def _has_news(site: Site, key: str, decision: Decision, plan: Planned) -> bool:
    """Return whether something has to be written down."""
    return bool(
        decision.held
        or decision.released
        or decision.refused
        or plan.context.waldur_is_empty
        or ownership.has_news(site, decision, plan.snapshot, is_whole=_sees_offering(key, plan))
        or _joins(plan.snapshot, decision.allowed)
    )


def _system_users(actions: Iterable[Action]) -> frozenset[str]:
    """Return the users of the system on this host among those whom a plan adds to accounts and groups.

    Who is one by name is protected anyway. A name that this host does not know is taken for a person's.
    """
    joining = {
        fold(user)
        for action in actions
        if action.effect is Effect.ADD and action.where in JOINED and (user := action.ids().get("user"))
    }
    return frozenset(filter(nss.is_system_user, joining))


def _joined(rows: Iterable[HeldRow]) -> list[WaitingPlan]:
    """Make one plan of those that events brought one by one: a person approves a flood once, and not forty times."""
    of_scope: dict[str, list[HeldRow]] = {}
    for each in rows:
        of_scope.setdefault(each.scope, []).append(each)
    found = []
    for scope, several in of_scope.items():
        keys = frozenset[str]().union(*(each.keys for each in several))
        text = "\n".join([scope, *sorted(keys)]).encode("utf-8", "surrogatepass")
        id_ = several[0].id if len(several) == 1 else sha256(text).hexdigest()
        found.append(WaitingPlan(id_, scope, several[0].reason, keys, joined=len(several)))
    return found


def _reserve(run: Pass, key: str, spent: Iterable[Charge], source: Source, approved: str = "") -> None:
    charges.reserve(
        source,
        spent,
        cluster=run.site.backend.cluster,
        offering=run.site.offering.uuid,
        mode=key,
        pass_id=run.id,
        now=datetime.now(UTC),
        plan=approved,
    )


def _written_down(run: Pass, key: str, plan: Planned, decision: Decision, source: Source) -> Decision:
    """Write down what is held, begun or skipped, and forget held plans that are gone.

    Only a plan about everything of the offering shows which held plans are gone. Parts of a plan for one order or
    resource that belong to a waiting plan wait with that.
    """
    site, held = run.site, HeldPlans(source, run.site.offering, key)
    parts = set() if plan.is_whole else {each.id for each in held.planned()}
    joined.write(source, site.backend.cluster, _joins(plan.snapshot, decision.allowed), datetime.now(UTC))
    ownership.write(site, decision, plan.snapshot, source, is_whole=_sees_offering(key, plan))
    decision = replace(decision, held=tuple(_hold(site, held, each, parts, plan) for each in decision.held))
    for each in decision.released:
        if held.approvals.begin(each.id):
            log.warning(
                "plan %s of offering %s was approved: %s", each.short_id, site.offering.name, each.reason
            )
        held.release(each.id, each.lines)
    if plan.is_whole:
        leave_out(source, site.offering, key, decision)
        if not (plan.context.has_gaps or reason_to_report_nothing(run.rules)) and all(
            refused.why is not Why.INCOMPLETE for refused in decision.refused
        ):
            _forget_what_is_gone(held, plan, decision)
    return decision


def _forget_what_is_gone(held: HeldPlans, plan: Planned, decision: Decision) -> None:
    """Forget the held plans and approvals of which a pass that has seen everything makes nothing any more. Where Waldur
    listed nothing at all, that is believed after a while only.
    """
    source, uuid = held.source, held.offering.uuid
    empty_answers.note(source, uuid, held.mode, is_empty=plan.context.waldur_is_empty)
    if plan.context.waldur_is_empty and not empty_answers.is_believed(source, uuid, held.mode):
        return
    made = {each.id: each.lines for each in decision.held if not each.adopts}
    released = {each.id: each.lines for each in decision.released}
    planned = {key for lines in made.values() for key in lines}
    looked_at, unplanned = plan.context.named - plan.context.unplanned, plan.context.unplanned
    for gone in held.keep_only(made.keys(), planned, looked_at, unplanned):
        log.info("plan %s of offering %s is not held any more", gone[:SHORT_ID], held.offering.name)
    planned |= {key for lines in released.values() for key in lines}
    held.approvals.close(released.keys(), planned, looked_at, unplanned)


def _joins(snapshot: Snapshot, actions: Iterable[Action]) -> list[tuple[str, str]]:
    """Return who joins an account that has members already, by account and user."""
    return [
        (account, user)
        for _, account, user in objects_made(actions, ObjectKind.MEMBER)
        if (users := snapshot.users_of(account)) and user not in users
    ]


def _hold(site: Site, held: HeldPlans, plan: HeldPlan, parts: Set[str], planned: Planned) -> HeldPlan:
    """Write a held plan down; log it where that is news. Where it cannot be written the log does not name `approve`."""
    if plan.adopts:
        held = HeldPlans(held.source, held.offering, ownership.ADOPTION)
    row = HeldRow(
        id=plan.id,
        scope=plan.scope,
        reason=plan.reason,
        cluster=site.backend.cluster,
        lines=plan.lines,
        figures=plan.figures,
        is_apart=not planned.is_whole,
        is_lasting=plan.is_lasting,
    )
    result = HoldResult.KNOWN if plan.id in parts else held.hold(row)
    if result is HoldResult.UNWRITTEN:
        plan = replace(
            plan,
            unwritten=f"it cannot be written to {site.state_dir}, so that it cannot be approved: correct that (a full "
            "disk?), and the next pass writes it down",
        )
    # The approval was for other figures than these.
    is_withdrawn = bool(plan.figures) and held.approvals.withdraw(plan.id)
    if result is not HoldResult.KNOWN or is_withdrawn:
        log.warning(
            "plan %s of offering %s (%s) is held: %s. Nothing of it is done%s",
            plan.short_id,
            site.offering.name,
            plan.scope,
            plan.reason,
            f"; {plan.unwritten}"
            if plan.unwritten
            else f" until `approve {plan.short_id}`; `approve` lists it",
        )
    return plan


def leave_out(source: Source, offering: Offering, key: str, decision: Decision) -> None:
    """Write down what is refused, and log it where it is news; that amounts grow is none."""
    lines = sorted(f"{r.action.line()}: {r.sentence}" for r in decision.refused)
    sentences = "; ".join(sorted({r.sentence for r in decision.refused}))
    meant = plan_id(sentences, (r.action for r in decision.refused))
    known = SKIPPED.get(source, offering.uuid, key)
    before = known or Skipped()
    is_news = (before.count, before.meant) != (len(lines), meant)
    since = stamp(datetime.now(UTC)) if is_news else before.since
    left = Skipped(since, len(lines), tuple(lines[:LINES_AT_MOST]), meant)
    SKIPPED.change(source, offering.uuid, {key: known} if known else {}, {key: left} if lines else {})
    if lines and is_news:
        log.warning(
            "%s of offering %s: %d actions are skipped: %s%s",
            key,
            offering.name,
            len(lines),
            "; ".join(lines[:SHOWN]),
            f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else "",
        )
