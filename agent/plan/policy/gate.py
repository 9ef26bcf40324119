# SPDX-License-Identifier: MIT
"""Policy over a plan: what of it is allowed, what waits for a person's approval, and what is refused.

actions of one pass -> refused (mode, ownership, protection; `rules`)
                    -> held (too much at once or in too short a time, a limit cut, less usage), each plan under an
                       id that a person may approve
                    -> allowed, in their order, with what they cost people
An action that needs a held or refused one is held or refused with it (`dependencies`). The same actions have the same
plan id in every pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from itertools import filterfalse

from agent.core.actions import Action, Effect, only
from agent.core.model import Part, Snapshot
from agent.core.ownership import Ledger
from agent.core.policy import (
    SHORT_ID,
    Charge,
    Cost,
    History,
    LimitCuts,
    PolicyMode,
    PolicyRules,
    UsageDecreases,
)
from agent.core.usage_actions import UsageAction
from agent.plan.policy import ownership
from agent.plan.policy.budgets import PLANS_APART_AT_MOST, BudgetCheck, Excess, abbreviated
from agent.plan.policy.dependencies import Dependencies
from agent.plan.policy.rules import PolicyContext, RuleBook, Why, is_empty, made_by


@dataclass(frozen=True, slots=True)
class Refused:
    action: Action
    why: Why
    sentence: str


@dataclass(frozen=True)
class HeldPlan:
    """Actions that wait together for `approve`."""

    # A digest of the scope and the actions.
    id: str
    # The account or the cluster that they are about.
    scope: str
    reason: str
    actions: tuple[Action, ...] = field(compare=False)
    # Those that get less, by name; an approval is for no smaller ones.
    figures: Mapping[str, str] = field(default_factory=dict, compare=False)
    # The reason where there is no room for all of it.
    brief: str = field(default="", compare=False)
    # Why `approve` does not know of the plan, and cannot release it.
    unwritten: str = field(default="", compare=False)
    # The approval is for no action, but for what the accounts of these lines are from then on; the actions are judged
    # after that.
    adopts: Mapping[str, str] = field(default_factory=dict, compare=False)
    # It waits for a person for as long as it is planned. What is not is judged anew by each pass over everything: a
    # limit below what is used, when less is used.
    is_lasting: bool = field(default=True, compare=False)

    @property
    def short_id(self) -> str:
        """Return the id as people see it."""
        return self.id[:SHORT_ID]

    @cached_property
    def lines(self) -> Mapping[str, str]:
        """Return what an approval is for: the text of each action for people, by the action's key."""
        if self.adopts:
            return {ownership.adoption_key(account): line for account, line in self.adopts.items()}
        return {action_key(action): action.render() for action in self.actions}

    @property
    def release(self) -> str:
        """Return how a person releases it."""
        why = "`approve` shows why, " if self.brief else ""
        return self.unwritten or f"{why}`approve {self.short_id}` releases it"


@dataclass(frozen=True, slots=True)
class WaitingPlan:
    """A plan that an earlier pass has held."""

    id: str
    scope: str
    reason: str
    # Those of its actions.
    keys: frozenset[str]
    # How many plans it was made of.
    joined: int = 1


@dataclass(frozen=True, slots=True)
class EarlierPlans:
    """What earlier passes and people left behind."""

    # By plan, the keys of the actions that a person was shown and has approved: what of them is still planned happens,
    # and nothing else.
    approved: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # What was held, and goes on to wait for a person as long as it is planned, also where the numbers that it was
    # measured by have changed, or where a pass sees a part of it only.
    waiting: tuple[WaitingPlan, ...] = ()
    # Of plans about figures that get less, those that were approved; figures below need another approval.
    figures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # The plan that is decided on is about everything; one about a part may have other steps for the same end.
    sees_all: bool = True

    def approvals(self, actions: Iterable[Action]) -> dict[Action, str]:
        """Return the actions that were approved, each with the id of its plan."""
        plans = {
            key: plan for plan, keys in self.approved.items() if plan not in self.figures for key in keys
        }
        if not plans:
            return {}
        return {action: plans[key] for action in actions if (key := action_key(action)) in plans}

    def allows_decrease(self, plan: HeldPlan) -> bool:
        """Return whether a person has approved that these figures get less, as far as they do."""
        given = [
            figures
            for id_, figures in self.figures.items()
            if id_ == plan.id or plan.lines.keys() <= self.approved.get(id_, frozenset())
        ]
        # No figure is less than what was approved, and none was not among it.
        return any(
            all(
                name in figures and Decimal(amount) >= Decimal(figures[name])
                for name, amount in plan.figures.items()
            )
            for figures in given
        )


@dataclass(frozen=True)
class Decision:
    """What may happen of a plan: every action of it is in exactly one of the first three."""

    allowed: tuple[Action, ...] = ()
    held: tuple[HeldPlan, ...] = ()
    refused: tuple[Refused, ...] = ()
    # These were held once.
    released: tuple[HeldPlan, ...] = ()
    # Limits that are lowered all the same, with what is used of them.
    notes: tuple[str, ...] = ()
    # Whose accounts these are.
    ledger: Ledger = field(default_factory=Ledger)
    # What the allowed actions cost people that no person has approved.
    charges: tuple[Charge, ...] = ()
    # What each released plan costs, by its id.
    approved_charges: Mapping[str, tuple[Charge, ...]] = field(default_factory=dict)

    @property
    def not_ours(self) -> frozenset[str]:
        """Return the accounts that Waldur names and that a person has to adopt first."""
        return frozenset(account for each in self.held for account in each.adopts)

    @cached_property
    def blocked(self) -> Mapping[Action, str]:
        """Return what does not happen, each with the reason for people."""
        reasons = {refused.action: refused.sentence for refused in self.refused}
        for plan in self.held:
            reason = f"held as plan {plan.short_id}: {plan.brief or plan.reason}; {plan.release}"
            reasons.update(dict.fromkeys(plan.actions, reason))
        return reasons

    def reason(self, action: Action) -> str:
        """Return why this action does not happen; empty when it does."""
        return self.blocked.get(action, "")


def decide(  # noqa: PLR0913  each is an input of the decision
    actions: Iterable[Action],
    snapshot: Snapshot,
    rules: PolicyRules,
    earlier: EarlierPlans = EarlierPlans(),
    context: PolicyContext = PolicyContext(),
    history: History = History(),
    ledger: Ledger = Ledger(),
) -> Decision:
    """Decide on the plan of one pass for one cluster, whose state before it is `snapshot`. Equal actions count once.

    `history`: what that cluster's people have borne within the last hour and day, whatever brought it. `ledger`: whose
    its accounts are.
    """
    plan = tuple(dict.fromkeys(actions))
    book = RuleBook(snapshot, rules, context, made_by(plan), ledger)
    dependencies = Dependencies(plan, snapshot, context.ordered, context.renamed)
    refused = _refused(plan, book, dependencies)
    left = tuple(action for action in plan if action not in refused)
    foreign = _adoptions(left, book, dependencies, frozenset(refused))
    aside = _actions(foreign)
    left = tuple(filterfalse(aside.__contains__, left))
    approved = earlier.approvals(left)
    costs = BudgetCheck(left, book, history, frozenset(approved))
    held: list[HeldPlan] = [*foreign]
    released: list[HeldPlan] = []
    for each in _Plans(left, book, dependencies, costs, aside | refused.keys(), approved.keys()).held(
        earlier
    ):
        (released if each.figures and earlier.allows_decrease(each) else held).append(each)
    stopped = _actions(held)
    allowed = tuple(filterfalse(stopped.__contains__, left))
    released += _approved_plans({a: approved[a] for a in allowed if a in approved}, earlier)
    spent = _sum(costs, set(allowed) - _actions(released))
    approved_charges = {each.id: _sum(costs, each.actions) for each in released}
    free = history.approved.union(*approved_charges.values())
    return Decision(
        allowed=allowed,
        held=tuple(held),
        refused=tuple(refused.values()),
        released=tuple(released),
        notes=tuple(
            f"lowers limits of {action.for_account} (in the cluster's units): "
            f"{'; '.join(_cut_text(*cut) for cut in cuts)}"
            for action in allowed
            if (cuts := _lowered(book, action))
        ),
        charges=tuple(charge for charge in spent if charge not in free),
        approved_charges=approved_charges,
        ledger=ledger,
    )


def _approved_plans(approved: Mapping[Action, str], earlier: EarlierPlans) -> Iterator[HeldPlan]:
    """Yield what happens of each approved plan; `approved`: actions with the id of their plan."""
    known = {each.id: each for each in earlier.waiting}
    for id_ in dict.fromkeys(approved.values()):
        actions = tuple(action for action, of in approved.items() if of == id_)
        scope, reason = (known[id_].scope, known[id_].reason) if id_ in known else ("", "")
        yield HeldPlan(id_, scope, reason, actions)


def lowered_accounts(
    actions: Iterable[Action],
    snapshot: Snapshot,
    rules: PolicyRules,
    context: PolicyContext = PolicyContext(),
) -> frozenset[str]:
    """Return the accounts of which a limit is lowered and `snapshot` does not say what is used: `decide` needs it, or
    shows it where cuts are allowed.
    """
    if rules.paused or rules.mode is not PolicyMode.SYNC:
        return frozenset()
    known = snapshot.used if Part.USAGE in snapshot.complete else {}
    return frozenset(
        action.for_account
        for action in set(actions)
        if action.for_account not in context.ending | known.keys()
        and action.used_limits(snapshot)
        and not is_empty(snapshot, action.for_account)
    )


def accounts_not_ours(
    actions: Iterable[Action], snapshot: Snapshot, rules: PolicyRules, context: PolicyContext, ledger: Ledger
) -> frozenset[str]:
    """Return the accounts of these actions that a person has to adopt first."""
    book = RuleBook(snapshot, rules, context, frozenset(), ledger)
    return frozenset(account for action in actions if (account := book.not_ours(action)))


def action_key(action: Action) -> str:
    """Return a text that is the same for equal actions, and for no others, in every process and on every day. Where a
    limit may be lowered, it has the limit before as well: a person has seen how far.
    """
    has_before = Cost.LIMITS_CUT in action.costs
    meant = [f.name for f in fields(action) if f.compare or (has_before and f.name == "before")]
    values = {name: getattr(action, name) for name in meant}
    return json.dumps([type(action).__name__, values], sort_keys=True, ensure_ascii=False, default=asdict)


def plan_id(scope: str, actions: Iterable[Action]) -> str:
    text = "\n".join([scope, *sorted(set(map(action_key, actions)))])
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _refused(plan: Sequence[Action], book: RuleBook, dependencies: Dependencies) -> dict[Action, Refused]:
    roots = {
        action: Refused(action, found.why, found.sentence)
        for action in plan
        if (found := book.violation(action))
    }
    marks = dependencies.falling_with(roots)
    refused = dict(roots)
    for action, cause in marks.items():
        if action not in roots:
            sentence = f"{cause.sentence}; this goes with: {cause.action.line()}"
            refused[action] = Refused(action, cause.why, sentence)
    return {action: refused[action] for action in plan if action in refused}


def _adoptions(
    left: Sequence[Action], book: RuleBook, dependencies: Dependencies, refused: Set[Action]
) -> list[HeldPlan]:
    """Return the plans about accounts that Waldur names and that are not ours, as far as this host knows: a person has
    to adopt them first. Each account is a plan of its own, many of them are one.
    """
    roots: dict[str, list[Action]] = {}
    for action in left:
        if account := book.not_ours(action):
            roots.setdefault(account, []).append(action)
    plans = [[account] for account in sorted(roots)]
    if len(plans) > PLANS_APART_AT_MOST:
        plans = [sorted(roots)]
    found = []
    for accounts in plans:
        marked = dict.fromkeys((action for account in accounts for action in roots[account]), True)
        along = dependencies.falling_with(marked, excluded=refused)
        lines = {name: ownership.described(name, book.snapshot, book.ledger) for name in accounts}
        scope = f"account {accounts[0]}" if len(accounts) == 1 else f"cluster {book.snapshot.cluster}"
        text = "\n".join((scope, *map(ownership.adoption_key, accounts)))
        them = "it" if len(accounts) == 1 else "them"
        sentence = (
            f"Waldur names {abbreviated(accounts)}, and this host did not make {them}, "
            "nor is it in the offering's hierarchy under one of its prefixes: to approve this is to make "
            f"{them} the offering's"
        )
        id_ = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        actions = tuple(action for action in left if action in along)
        found.append(HeldPlan(id_, scope, sentence, actions, adopts=lines))
    return found


def _sum(costs: BudgetCheck, actions: Iterable[Action]) -> tuple[Charge, ...]:
    return tuple(sorted({charge for action in actions for charge in costs.of(action)}))


class _Plans:
    """What of a plan waits for a person: too much, a limit cut, usage that gets less, or all of it. What a person has
    `approved` waits for no other reason than that something it depends on does.
    """

    def __init__(
        self,
        left: Sequence[Action],
        book: RuleBook,
        dependencies: Dependencies,
        costs: BudgetCheck,
        aside: Set[Action],
        approved: Set[Action],
    ) -> None:
        self._left = left
        self._place = {action: number for number, action in enumerate(left)}
        self._book = book
        self._dependencies = dependencies
        self._costs = costs
        self._aside = aside
        self._approved = approved

    def held(self, earlier: EarlierPlans) -> list[HeldPlan]:
        """Return all plans that need an approval and do not have it, but for figures that get less."""
        waiting = list(self._parts_of(earlier))
        aside = _actions(waiting)
        # Of people who are renamed the old names leave and the new ones join: that is one plan, however many accounts.
        renamed = self._costs.over_budget(Cost.PEOPLE_RENAMED, frozenset())
        names = [self._held(renamed)] if renamed else []
        found = [*names, *self._too_much_at_once([*waiting, *names]), *self._cuts()]
        for cost in Cost:
            if excess := self._costs.over_budget(cost, aside | _actions(found)):
                found.append(self._held(excess, aside))
        known = {plan.id for plan in found}
        for part in waiting:
            covered = any({*part.actions} <= {*other.actions} for other in found)
            if part.id not in known and not covered:
                found.append(part)
        return [*found, *held_decreases(self._left, self._book.rules)]

    def _parts_of(self, earlier: EarlierPlans) -> Iterator[HeldPlan]:
        """Yield what belongs to plans that wait already. Where nothing has come to depend on it since, that is the same
        plan, or what is left of it.
        """
        if not earlier.waiting:
            return
        keys = {action_key(action): action for action in self._left if action not in self._approved}
        for plan in earlier.waiting:
            if roots := [action for key, action in keys.items() if key in plan.keys]:
                actions = self._with_companions(roots)
                is_same = not earlier.sees_all or plan.keys.issuperset(map(action_key, actions))
                id_ = plan.id if is_same else plan_id(plan.scope, actions)
                reason = plan.reason
                if plan.joined > 1:
                    reason = f"{plan.joined} plans that were held one by one: {self._costs.sentence(actions) or reason}"
                yield HeldPlan(id_, plan.scope, reason, actions)

    def _too_much_at_once(self, waiting: Sequence[HeldPlan]) -> list[HeldPlan]:
        """Return what waits for its number, or because a person must look at all of it. What is `waiting` already is
        looked at again only with more of the same account.
        """
        cluster = f"cluster {self._book.snapshot.cluster}"
        if why := self._book.context.needs_approval:
            roots = tuple(a for a in self._left if a.effect is not Effect.TELL and a not in self._approved)
            return [self._held(Excess(cluster, why, roots))] if roots else []
        aside = _actions(waiting)
        alone = [
            excess
            for excess in self._costs.accounts_in_excess()
            if not any({*excess.roots} <= {*plan.actions} for plan in waiting)
        ]
        together = self._costs.cluster_in_excess(alone, aside)
        return [self._held(each, aside) for each in ([together] if together else alone)]

    def _cuts(self) -> list[HeldPlan]:
        """Return the plans of limits that would be set below what is used, or where that is unknown."""
        if self._book.rules.limit_cuts is LimitCuts.ALLOW or self._book.context.needs_approval:
            return []
        found = []
        for action in self._left:
            if action in self._approved:
                continue
            cuts = [
                _cut_text(*cut) for cut in _lowered(self._book, action) if cut[3] is None or cut[3] > cut[2]
            ]
            if cuts:
                sentence = (
                    f"lowers limits of {action.for_account} (in the cluster's units): {'; '.join(cuts)}; "
                    "where more is used than left, running jobs may be killed"
                )
                excess = Excess(f"account {action.for_account}", sentence, (action,))
                found.append(replace(self._held(excess), is_lasting=False))
        return sorted(found, key=lambda plan: (plan.scope, plan.id))

    def _held(self, excess: Excess, aside: Set[Action] = frozenset()) -> HeldPlan:
        actions = self._with_companions(excess.roots)
        id_ = plan_id(excess.scope, actions)
        besides = [
            f"{len(others)} actions {state}"
            for state, others in (("wait already", aside - {*actions}), ("are approved", self._approved))
            if others
        ]
        sentence = excess.sentence + (f"; besides this, {' and '.join(besides)}" if besides else "")
        return HeldPlan(id_, excess.scope, sentence, actions)

    def _with_companions(self, roots: Sequence[Action]) -> tuple[Action, ...]:
        along = self._dependencies.falling_with(dict.fromkeys(roots, True), excluded=self._aside)
        return tuple(sorted(along, key=self._place.__getitem__))


def _lowered(book: RuleBook, action: Action) -> list[tuple[str, int | None, int, int | None]]:
    """Return name, limit now, limit then, and what is used. Nothing where no job can be: an ordered end has stopped
    them, and an account without members has none; nor a first limit of an account that we began to make.
    """
    snapshot = book.snapshot
    lowered = sorted(action.used_limits(snapshot).items())
    if not lowered:
        return []
    account = action.for_account
    if account in book.context.ending or book.is_empty(account):
        return []
    used = snapshot.used.get(account, {}) if Part.USAGE in snapshot.complete else {}
    is_first = book.is_being_made(account)
    return [
        (tres, now, then, used.get(tres)) for tres, (now, then) in lowered if not (now is None and is_first)
    ]


def _cut_text(tres: str, now: int | None, then: int, spent: int | None) -> str:
    known = "what is used is not known" if spent is None else f"{spent} are used"
    return f"{tres} from {'unlimited' if now is None else now} to {then}, {known}"


def _actions(plans: Iterable[HeldPlan]) -> frozenset[Action]:
    return frozenset(action for plan in plans for action in plan.actions)


def held_decreases(actions: Iterable[Action], rules: PolicyRules) -> Iterator[HeldPlan]:
    """Yield the usage figures below those that Waldur has: these may have been billed, so a person looks
    first. A total that gets less keeps back all that is reported of its resource in that month; the figures belong
    together. Where users alone get less, the shares of that component wait, and the rest is reported.

    A plan is known by its resource and month and by what gets less; while it waits, what is counted may grow. An
    approval was given for the figures that were shown: what falls below them waits anew.
    """
    if rules.usage_decreases is UsageDecreases.ALLOW:
        return
    reports: dict[tuple[str, str, str], list[UsageAction]] = {}
    for action in only(UsageAction, actions):
        if action.may_fall:
            continue
        reports.setdefault((action.account, action.month, action.resource), []).append(action)
    for (account, month, resource), several_reports in sorted(reports.items()):
        totals_fall = any(action.is_total and any(action.decreases()) for action in several_reports)
        several = [action for action in several_reports if totals_fall or any(action.decreases())]
        less = [figure for action in several for figure in action.decreases()]
        if not less:
            continue
        figures = {name: amount for name, _, amount in less}
        reason = next(filter(None, (action.reason for action in several)), "")
        brief = (
            f"usage of {account} in {month} would get less: "
            f"{abbreviated([f'{name} from {was} to {amount}' for name, was, amount in less])}"
        )
        scope = f"account {account}, {month}"
        yield HeldPlan(
            plan_id("\n".join((scope, resource, *sorted(figures))), ()),
            scope,
            "; ".join(filter(None, (brief, reason))),
            tuple(several),
            figures,
            brief,
            is_lasting=False,
        )
