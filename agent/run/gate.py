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
from typing import Any, Protocol
from uuid import uuid4

from agent.config.model import Mode, Offering
from agent.core.account_names import fold
from agent.core.actions import Action, Effect
from agent.core.errors import StateError, StateUnwritable
from agent.core.model import Snapshot
from agent.core.policy import Charge, JournalFailures, PolicyMode, PolicyRules
from agent.plan.policy.gate import (
    ID_LENGTH,
    Decision,
    EarlierPlans,
    HeldPlan,
    WaitingPlan,
    lowered_accounts,
    plan_id,
)
from agent.plan.policy.gate import decide as decide_on
from agent.plan.policy.rules import PolicyContext, Why
from agent.run.results import PassReport
from agent.run.site import Site
from agent.state import charges, empty_answers, held_plans, journal, left_out, passes, pauses
from agent.state.held_plans import HeldPlans, HeldRow, HoldResult
from agent.state.store import Source, Store, reading
from backends.usernames import nss

log = logging.getLogger(__name__)

UNBOUNDED_S = float("inf")

SHOWN = 3
# Where users are added to accounts and groups; homes look at uids themselves.
JOINED = frozenset({"cluster", "directory"})


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
        """What the policy must know beside the cluster's state."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether it is about everything of the offering, so that a held plan which it lacks is gone."""
        ...


@dataclass(slots=True)
class Pass:
    """One pass over an offering, of one or several loops: the rules as they were when it began, its end, its report.

    `subject`: the order, resources or projects that it is about, empty for everything. `makes_way`: whether something
    more urgent waits. `cause`: what the journal names as the reason where it is no pass. `holds`: whether what is held
    is written down for `approve`; not where whoever started the pass decides with an option.
    """

    site: Site
    mode: Mode
    rules: PolicyRules
    report: PassReport
    subject: str = ""
    until_s: float = UNBOUNDED_S
    makes_way: Callable[[], bool] = lambda: False
    cause: str = ""
    holds: bool = True
    id: str = field(default_factory=lambda: uuid4().hex)

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.until_s

    def reserve_journal(self) -> None:
        """See to it that what is done next can be written down, where the rules want that. Raises StateError."""
        if self.rules.journal_failures is JournalFailures.STOP:
            journal.reserve(self.site.state_dir)


def rules_of(site: Site) -> PolicyRules:
    """Return the rules of the site's offering, with a pause by command."""
    return rules_for(site.offering, site.state_dir)


def rules_for(offering: Offering, state_dir: Path) -> PolicyRules:
    """Return the offering's rules, with a pause by command. Where nobody can tell whether it is paused, it is."""
    rules = offering.policy
    try:
        note = pauses.pause_note(state_dir, offering)
    except StateError as error:
        note = f"perhaps: {error}"
    return replace(rules, paused=True, paused_why=note) if note and not rules.paused else rules


def may_tell(rules: PolicyRules) -> bool:
    """Return whether Waldur may be told anything: not in a pause, and not in a mode that only observes."""
    return not reason_to_tell_nothing(rules)


def reason_to_tell_nothing(rules: PolicyRules) -> str:
    """Return why Waldur may be told nothing, empty where it may be told."""
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
    return _decided(site, rules, key, plan, site.state_dir, plan.context, after)


def decide(run: Pass, key: str, plan: Planned) -> Decision:
    """Return what of this plan may be applied now; held plans are written down and logged once.

    What the past has cost people is read, and what this plan costs them is written, in one transaction: two passes at
    once do not both find room in one budget. Raises StateError where nobody can tell what is paused or approved.
    """
    site, context = run.site, plan.context
    if not run.holds:
        return decide_dry(site, run.rules, key, plan)
    if not any(action.costs for action in plan.actions):
        with reading(site.state_dir) as db:
            decision = _decided(site, run.rules, key, plan, db, context)
            has_news = decision.held or decision.released or decision.refused or context.sees_nothing
            if not has_news and held_plans.is_clear(db, site.offering, key):
                return decision
        return _written_down(run, key, plan, decision, site.state_dir)
    try:
        with Store(site.state_dir).write() as db:
            held_plans.drop_copied_back(db)
            charges.forget_old(db, datetime.now(UTC))
            decision = _decided(site, run.rules, key, plan, db, context)
            _reserve(run, key, decision.charges, db)
            for approved, spent in decision.approved_charges.items():
                _reserve(run, key, spent, db, approved)
            return _written_down(run, key, plan, decision, db)
    except StateUnwritable as error:
        context = replace(context, unrecorded=f"what it costs people cannot be written down: {error}")
        decision = _decided(site, run.rules, key, plan, site.state_dir, context)
        return _written_down(run, key, plan, decision, site.state_dir)


def are_held_apart(site: Site, key: str) -> bool:
    """Return whether several plans wait that no pass over everything has seen together: events bring them one by one,
    and it makes one of what belongs together. False where nobody can tell.
    """
    try:
        held = HeldPlans(site.state_dir, site.offering, key)
        unapproved = {each.id for each in held.waiting()} - {each.plan for each in held.approvals.open()}
    except StateError:
        return False
    ended = passes.last(site.state_dir, site.offering.uuid, key)
    whole: Mapping[str, Any] = next((entry for entry in ended if not entry.get("subject")), {})
    return len(unapproved - set(whole.get("held") or ())) > 1


def is_known(run: Pass, key: str, plan: Planned) -> bool:
    """Return whether what a pass saw may replace what was known: an answer that is empty by mistake must not. Raises
    StateError.
    """
    return not plan.context.sees_nothing or empty_answers.is_believed(
        run.site.state_dir, run.site.offering.uuid, key
    )


def _decided(  # noqa: PLR0913  each is an input of the decision
    site: Site,
    rules: PolicyRules,
    key: str,
    plan: Planned,
    source: Source,
    context: PolicyContext,
    after: Sequence[Decision] = (),
) -> Decision:
    """Decide with the approvals and the costs so far.

    A pass over one order or resource considers all waiting plans; one over everything only those that wait until a
    person decides.
    """
    with reading(source) as db:
        held = HeldPlans(db, site.offering, key)
        found, waiting = held.approvals.open(), held.waiting()
        history = charges.history(db, site.backend.cluster, datetime.now(UTC))
    waits = [
        WaitingPlan(each.id, each.scope, each.reason, each.keys, each.sticky)
        for each in waiting
        if each.sticky or not plan.is_whole
    ]
    if plan.is_whole:
        waits = _joined(waits, approved={each.plan for each in found})
    earlier = EarlierPlans(
        approved=frozenset(each.plan for each in found),
        begun={each.plan: each.begun for each in found if each.begun},
        waiting=tuple(waits),
        figures={each.plan: each.figures for each in found},
    )
    for each in after:
        history = history.with_costs(each.charges, each.approved_charges.values())
    context = replace(context, system_users=_system_users(plan.actions))
    return decide_on(plan.actions, plan.snapshot, rules, earlier, context, history)


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


def _joined(waits: Sequence[WaitingPlan], approved: Set[str]) -> list[WaitingPlan]:
    """Make one plan of those that events brought one by one: a person approves a flood once, and not forty times."""
    apart = [each for each in waits if each.id in approved]
    of_scope: dict[str, list[WaitingPlan]] = {}
    for each in waits:
        if each.id not in approved:
            of_scope.setdefault(each.scope, []).append(each)
    for scope, several in of_scope.items():
        if len(several) == 1:
            apart += several
            continue
        keys = frozenset(key for each in several for key in each.keys)
        id_ = sha256("\n".join([scope, *sorted(keys)]).encode("utf-8", "surrogatepass")).hexdigest()[
            :ID_LENGTH
        ]
        reason = f"{len(several)} plans were held one by one, the first of them: {several[0].reason}"
        apart.append(WaitingPlan(id_, scope, reason, keys, sticky=True))
    return apart


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
    """Write down what is held, begun or left out, and forget held plans that are gone.

    Only a plan about everything of the offering shows which held plans are gone. Parts of a plan for one order or
    resource that belong to a waiting plan wait with that.
    """
    site, uuid, held = run.site, run.site.offering.uuid, HeldPlans(source, run.site.offering, key)
    parts = set() if plan.is_whole else {waiting.id for waiting in held.waiting()}
    decision = replace(decision, held=tuple(_hold(site, held, each, parts) for each in decision.held))
    for each in decision.released:
        if each.id in parts:
            continue  # the whole of it is begun, and logged, by a pass over everything
        held.drop(each.id)
        if held.approvals.begin(each.id, each.keys):
            log.warning("plan %s of offering %s was approved: %s", each.id, site.offering.name, each.reason)
    if not plan.is_whole:
        return decision
    _leave_out(source, site.offering, key, decision)
    is_blind = plan.context.has_gaps or not may_tell(run.rules)
    if not is_blind and all(refused.why is not Why.INCOMPLETE for refused in decision.refused):
        empty_answers.note(source, uuid, key, is_empty=plan.context.sees_nothing)
        if plan.context.sees_nothing and not empty_answers.is_believed(source, uuid, key):
            return decision
        for gone in held.keep_only({each.id: each.keys for each in decision.held}):
            log.info("plan %s of offering %s is not held any more", gone, site.offering.name)
        still = {each.id: each.keys for each in (*decision.held, *decision.released)}
        held.approvals.close(still=still)
    return decision


def _hold(site: Site, held: HeldPlans, plan: HeldPlan, parts: Set[str]) -> HeldPlan:
    """Write a held plan down; log it where that is news. Where it cannot be written nobody is sent to `approve`."""
    row = HeldRow(
        id=plan.id,
        scope=plan.scope,
        reason=plan.reason,
        cluster=site.backend.cluster,
        lines=tuple(action.render() for action in plan.actions),
        keys=plan.keys,
        figures=plan.figures,
        sticky=plan.sticky,
    )
    result = HoldResult.KNOWN if plan.id in parts else held.hold(row)
    if result is HoldResult.UNWRITTEN:
        plan = replace(
            plan,
            unwritten=f"it cannot be written to {site.state_dir}, so that nobody can approve it: mend that (a full "
            "disk?), and the next pass writes it down",
        )
    if result is not HoldResult.KNOWN or (plan.figures and held.approvals.withdraw(plan.id)):
        log.warning(
            "plan %s of offering %s (%s) is held: %s. Nothing of it is done%s",
            plan.id,
            site.offering.name,
            plan.scope,
            plan.reason,
            f"; {plan.unwritten}" if plan.unwritten else f" until `approve {plan.id}`; `approve` lists it",
        )
    return plan


def _leave_out(source: Source, offering: Offering, key: str, decision: Decision) -> None:
    """Write down what is refused, and log it where it is news; that amounts grow is none."""
    lines = sorted(f"{r.action.line()}: {r.sentence}" for r in decision.refused)
    sentences = "; ".join(sorted({r.sentence for r in decision.refused}))
    meant = plan_id(sentences, (r.action for r in decision.refused))
    if left_out.write(source, offering.uuid, key, lines, meant=meant):
        log.warning(
            "%s of offering %s: %d actions are left out: %s%s",
            key,
            offering.name,
            len(lines),
            "; ".join(lines[:SHOWN]),
            f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else "",
        )
