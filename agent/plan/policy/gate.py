# SPDX-License-Identifier: MIT
"""Policy over a plan: what of it is allowed, what waits for a person's approval, and what is refused.

actions of one pass -> refused (mode, ownership, protection; `rules`)
                    -> held (too much at once or in too short a time, a limit cut, less usage), each plan under an
                       id that a person may approve
                    -> allowed, in their order, with what they cost people
Nothing is left half: `dependencies` says what falls together. The same actions have the same plan id in every pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from itertools import filterfalse

from agent.core.actions import Action, Effect
from agent.core.model import Part, Snapshot
from agent.core.policy import Charge, Cost, History, LimitCuts, PolicyMode, PolicyRules
from agent.plan.policy.budgets import BudgetCheck, Excess
from agent.plan.policy.decreases import held_decreases, is_below
from agent.plan.policy.dependencies import Dependencies
from agent.plan.policy.rules import PolicyContext, RuleBook, Why, made_by

ID_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Refused:
    action: Action
    why: Why
    sentence: str


@dataclass(frozen=True)
class HeldPlan:
    """Actions that wait together for `approve`. `scope`: the account or the cluster that they are about; `figures`:
    those that get less, by name, of which an approval is for no smaller ones. `brief`: the reason where there
    is no room for all of it. `unwritten`: why `approve` does not know of the plan, and cannot release it.
    `sticky`: held for what happened before it, so that time alone does not release it.
    """

    id: str
    scope: str
    reason: str
    actions: tuple[Action, ...] = field(compare=False)
    figures: Mapping[str, str] = field(default_factory=dict, compare=False)
    brief: str = field(default="", compare=False)
    unwritten: str = field(default="", compare=False)
    sticky: bool = field(default=False, compare=False)

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset(map(action_key, self.actions))

    @property
    def release(self) -> str:
        """Return how people let it go."""
        why = "`approve` tells why, " if self.brief else ""
        return self.unwritten or f"{why}`approve {self.id}` releases it"


@dataclass(frozen=True, slots=True)
class WaitingPlan:
    """A plan that an earlier pass over everything has held; `keys` are those of its actions."""

    id: str
    scope: str
    reason: str
    keys: frozenset[str]
    sticky: bool = False


@dataclass(frozen=True, slots=True)
class EarlierPlans:
    """What earlier passes and people left behind: the ids of `approved` plans, and the plans that are `waiting`.

    `begun`: by plan, the keys of the actions that a pass has begun with. A plan that was begun and cut off is smaller
    in the next pass; what is left of it needs no second approval. `waiting`: for a pass over one order or resource
    all of them: it sees a part of them only, which may look harmless; for a pass over everything those that are
    sticky. `figures`: what was shown, by plan; figures below need another approval.
    """

    approved: frozenset[str] = frozenset()
    begun: Mapping[str, frozenset[str]] = field(default_factory=dict)
    waiting: tuple[WaitingPlan, ...] = ()
    figures: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def releases(self, plan: HeldPlan) -> bool:
        """Return whether a person has approved this plan, or all that is left of it."""
        if not plan.figures:
            begun = frozenset().union(*self.begun.values())
            return plan.id in self.approved or (bool(begun) and plan.keys <= begun)
        rest_of = {id for id, keys in self.begun.items() if plan.keys <= keys}
        given = ({plan.id} & self.approved) | rest_of
        return any(not is_below(plan.figures, self.figures.get(id, {})) for id in given)


@dataclass(frozen=True)
class Decision:
    """Every action of the plan is in exactly one of `allowed`, `held` and `refused`; `released` was held once.

    `notes`: limits that are lowered all the same, with what is used of them. `charges`: what the allowed actions cost
    people that nobody has approved; `approved_charges`: what each released plan costs, by its id.
    """

    allowed: tuple[Action, ...] = ()
    held: tuple[HeldPlan, ...] = ()
    refused: tuple[Refused, ...] = ()
    released: tuple[HeldPlan, ...] = ()
    notes: tuple[str, ...] = ()
    charges: tuple[Charge, ...] = ()
    approved_charges: Mapping[str, tuple[Charge, ...]] = field(default_factory=dict)

    @cached_property
    def blocked(self) -> Mapping[Action, str]:
        """Return what does not happen, each with the reason for people."""
        reasons = {refused.action: refused.sentence for refused in self.refused}
        for plan in self.held:
            reason = f"held as plan {plan.id}: {plan.brief or plan.reason}; {plan.release}"
            reasons.update(dict.fromkeys(plan.actions, reason))
        return reasons

    def reason(self, action: Action) -> str:
        """Return why this action does not happen; empty when it does."""
        return self.blocked.get(action, "")


def decide(
    actions: Iterable[Action],
    snapshot: Snapshot,
    rules: PolicyRules,
    earlier: EarlierPlans = EarlierPlans(),
    context: PolicyContext = PolicyContext(),
    history: History = History(),
) -> Decision:
    """Decide on the plan of one pass for one cluster, whose state before it is `snapshot`. Equal actions count once.

    `history`: what that cluster's people have borne within the last hour and day, whatever brought it.
    """
    plan = tuple(dict.fromkeys(actions))
    book = RuleBook(snapshot, rules, context, made_by(plan))
    dependencies = Dependencies(plan, snapshot, context.ordered)
    refused = _refused(plan, book, dependencies)
    left = tuple(action for action in plan if action not in refused)
    costs = BudgetCheck(left, book, history)
    plans = _Plans(left, book, dependencies, costs, frozenset(refused)).held(earlier.waiting)
    held = tuple(filterfalse(earlier.releases, plans))
    released = tuple(filter(earlier.releases, plans))
    stopped, approved = _actions(held), _actions(released)
    allowed = tuple(action for action in left if action not in stopped)
    spent = _sum(costs, set(allowed) - approved)
    return Decision(
        allowed=allowed,
        held=held,
        refused=tuple(refused.values()),
        released=released,
        notes=tuple(
            f"lowers limits of {action.for_account} (in the cluster's units): {'; '.join(_told(*cut) for cut in cuts)}"
            for action in allowed
            if (cuts := _lowered(book, action))
        ),
        charges=tuple(charge for charge in spent if charge not in history.approved),
        approved_charges={p.id: _sum(costs, set(p.actions) - stopped) for p in released},
    )


def lowered_accounts(
    actions: Iterable[Action],
    snapshot: Snapshot,
    rules: PolicyRules,
    context: PolicyContext = PolicyContext(),
) -> frozenset[str]:
    """Return the accounts of which a limit is lowered and `snapshot` does not tell what is used: `decide` needs it, or
    shows it where cuts are allowed.
    """
    if rules.paused or rules.mode is not PolicyMode.SYNC:
        return frozenset()
    known = snapshot.used if Part.USAGE in snapshot.complete else {}
    return frozenset(
        action.for_account
        for action in set(actions)
        if action.for_account not in context.ordered | known.keys() and action.used_limits(snapshot)
    )


def action_key(action: Action) -> str:
    """Return a text that is the same for equal actions, in every process and on every day."""
    meant = {f.name for f in fields(action) if f.compare}
    values = {name: value for name, value in asdict(action).items() if name in meant}
    return json.dumps([type(action).__name__, values], sort_keys=True, ensure_ascii=False)


def plan_id(scope: str, actions: Iterable[Action]) -> str:
    text = "\n".join([scope, *sorted(set(map(action_key, actions)))])
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_LENGTH]


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


def _sum(costs: BudgetCheck, actions: Iterable[Action]) -> tuple[Charge, ...]:
    return tuple(sorted({charge for action in actions for charge in costs.of(action)}))


class _Plans:
    """What of a plan waits for a person: too much, a limit cut, usage that gets less, or all of it."""

    def __init__(
        self,
        left: Sequence[Action],
        book: RuleBook,
        dependencies: Dependencies,
        costs: BudgetCheck,
        refused: frozenset[Action],
    ) -> None:
        self._left = left
        self._place = {action: number for number, action in enumerate(left)}
        self._book = book
        self._dependencies = dependencies
        self._costs = costs
        self._refused = refused

    def held(self, earlier: Iterable[WaitingPlan]) -> list[HeldPlan]:
        """Return all plans that need an approval, given or not."""
        waiting = list(self._parts_of(earlier))
        aside = _actions(plan for plan in waiting if plan.sticky)
        found = [*self._too_much_at_once(aside), *self._cuts()]
        for cost in Cost:
            if excess := self._costs.over_budget(cost, aside | _actions(found)):
                found.append(self._held(excess))
        known = {plan.id for plan in found}
        for part in waiting:
            covered = part.sticky and any({*part.actions} <= {*other.actions} for other in found)
            if part.id not in known and not covered:
                found.append(part)
        for less in held_decreases(self._left, self._book.rules):
            id_ = plan_id("\n".join((less.scope, *less.less)), ())
            found.append(HeldPlan(id_, less.scope, less.sentence, less.actions, less.figures, less.brief))
        return found

    def _parts_of(self, earlier: Iterable[WaitingPlan]) -> Iterator[HeldPlan]:
        """Yield what belongs to plans that wait already, under their ids."""
        earlier = list(earlier)
        keys = {action_key(action): action for action in self._left} if earlier else {}
        for plan in earlier:
            if roots := [action for key, action in keys.items() if key in plan.keys]:
                actions = self._with_companions(roots)
                yield HeldPlan(plan.id, plan.scope, plan.reason, actions, sticky=plan.sticky)

    def _too_much_at_once(self, aside: Set[Action]) -> list[HeldPlan]:
        """Return what waits for its number, or because a person must look at all of it."""
        cluster = f"cluster {self._book.snapshot.cluster}"
        if why := self._book.context.needs_approval:
            roots = tuple(action for action in self._left if action.effect is not Effect.TELL)
            return [self._held(Excess(cluster, why, roots))] if roots else []
        alone = self._costs.accounts_in_excess()
        together = self._costs.cluster_in_excess(alone, aside)
        if together and not together.roots:
            return []  # all of it waits aside
        return [self._held(each) for each in ([together] if together else alone.values())]

    def _cuts(self) -> list[HeldPlan]:
        """Return the plans of limits that would be set below what is used, or where nobody can tell that."""
        if self._book.rules.limit_cuts is LimitCuts.ALLOW or self._book.context.needs_approval:
            return []
        found = []
        for action in self._left:
            cuts = [_told(*cut) for cut in _lowered(self._book, action) if cut[3] is None or cut[3] > cut[2]]
            if cuts:
                sentence = (
                    f"lowers limits of {action.for_account} (in the cluster's units): {'; '.join(cuts)}; "
                    "where more is used than left, running jobs may be killed"
                )
                found.append(self._held(Excess(f"account {action.for_account}", sentence, (action,))))
        return sorted(found, key=lambda plan: (plan.scope, plan.id))

    def _held(self, excess: Excess) -> HeldPlan:
        actions = self._with_companions(excess.roots)
        id_ = plan_id(excess.scope, actions)
        return HeldPlan(id_, excess.scope, excess.sentence, actions, sticky=excess.is_due_to_history)

    def _with_companions(self, roots: Sequence[Action]) -> tuple[Action, ...]:
        along = self._dependencies.falling_with(dict.fromkeys(roots, True), beside=self._refused)
        return tuple(sorted(along, key=self._place.__getitem__))


def _lowered(book: RuleBook, action: Action) -> list[tuple[str, int | None, int, int | None]]:
    """Name, limit now, limit then, and what is used. An ordered end has stopped the jobs before: nothing."""
    if action.for_account in book.context.ordered:
        return []
    snapshot = book.snapshot
    used = snapshot.used.get(action.for_account, {}) if Part.USAGE in snapshot.complete else {}
    lowered = sorted(action.used_limits(snapshot).items())
    return [(tres, now, then, used.get(tres)) for tres, (now, then) in lowered]


def _told(tres: str, now: int | None, then: int, spent: int | None) -> str:
    known = "what is used is not known" if spent is None else f"{spent} are used"
    return f"{tres} from {'unlimited' if now is None else now} to {then}, {known}"


def _actions(plans: Iterable[HeldPlan]) -> frozenset[Action]:
    return frozenset(action for plan in plans for action in plan.actions)
