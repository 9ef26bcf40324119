# SPDX-License-Identifier: MIT
"""Policy over a plan: what of it is allowed, what waits for a person's approval, and what is refused.

actions of one pass -> refused (mode, ownership, protection; `allowances`)
                    -> held (mass change, limit cut, less usage), each plan under an id that a person may approve
                    -> allowed, in their order
Nothing is left half: `bonds` says what goes along. The same actions have the same plan id in every pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from hashlib import sha256

from agent.core.actions import Action, AddMember, ClusterAction, DeleteAccount, RemoveMember, SetLimits
from agent.core.model import Part, Snapshot
from agent.core.policy import LimitCuts, PolicyMode, PolicyRules
from agent.plan.policy.decreases import held_decreases, is_below
from agent.plan.policy.dependencies import Bonds
from agent.plan.policy.rules import Grounds, Judge, Why, made_by

ID_LENGTH = 12
NAMED_AT_MOST = 5


@dataclass(frozen=True, slots=True)
class Refused:
    action: Action
    why: Why
    sentence: str


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """Actions that wait together for `approve`. `scope`: the account or the cluster that they are about; `floor`: the
    figures that get less, by name, of which an approval is for no smaller ones. `brief`: the reason where there
    is no room for all of it. `unwritten`: why `approve` does not know of the plan, and cannot release it.
    """

    id: str
    scope: str
    reason: str
    actions: tuple[Action, ...] = field(compare=False)
    floor: Mapping[str, str] = field(default_factory=dict, compare=False)
    brief: str = field(default="", compare=False)
    unwritten: str = field(default="", compare=False)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(map(action_key, self.actions))

    @property
    def release(self) -> str:
        """How it is let go."""
        why = "`approve` tells why, " if self.brief else ""
        return self.unwritten or f"{why}`approve {self.id}` releases it"


@dataclass(frozen=True, slots=True)
class Standing:
    """A plan that an earlier pass over everything has held; `keys` are those of its actions."""

    id: str
    scope: str
    reason: str
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Approvals:
    """What people have approved: plans by id, and the actions of approved plans that a pass has begun with.

    A plan that was begun and cut off is smaller in the next pass; what is left of it needs no second approval.
    `standing`: plans that wait, for a pass over one order or resource: it sees a part of them only, which may
    look harmless. `floors`: the figures that were shown, by plan; figures below them need another approval. `started`:
    `begun` by plan.
    """

    ids: frozenset[str] = frozenset()
    begun: frozenset[str] = frozenset()
    standing: tuple[Standing, ...] = ()
    floors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    started: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def release(self, plan: HeldPlan) -> bool:
        if not plan.floor:
            return plan.id in self.ids or plan.keys <= self.begun
        rest_of = {id for id, keys in self.started.items() if plan.keys <= keys}
        given = ({plan.id} & self.ids) | rest_of
        return any(not is_below(plan.floor, self.floors.get(id, {})) for id in given)


@dataclass(frozen=True)
class Judgement:
    """Every action of the plan is in exactly one of `allowed`, `held` and `refused`; `released` was held once. `notes`:
    limits that are lowered all the same, with what is used of them.
    """

    allowed: tuple[Action, ...] = ()
    held: tuple[HeldPlan, ...] = ()
    refused: tuple[Refused, ...] = ()
    released: tuple[HeldPlan, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def blocked(self) -> Mapping[Action, str]:
        """What does not happen, each with the reason for people."""
        reasons = {refused.action: refused.sentence for refused in self.refused}
        for plan in self.held:
            reason = f"held as plan {plan.id}: {plan.brief or plan.reason}; {plan.release}"
            reasons.update(dict.fromkeys(plan.actions, reason))
        return reasons

    def reason(self, action: Action) -> str:
        """Why this action does not happen; empty when it does."""
        return self.blocked.get(action, "")


def judge(
    actions: Iterable[Action],
    snapshot: Snapshot,
    rules: PolicyRules,
    approved: Approvals = Approvals(),
    grounds: Grounds = Grounds(),
) -> Judgement:
    """Judge the plan of one pass for one cluster, whose state before it is `snapshot`. Equal actions count once."""
    plan = tuple(dict.fromkeys(actions))
    judge_ = Judge(snapshot, rules, grounds, made_by(set(plan)))
    bonds = Bonds(plan, snapshot, grounds.making | grounds.ending)
    refused = _refused(plan, judge_, bonds)
    left = [action for action in plan if action not in refused]
    brake = _Brake(left, judge_, bonds, frozenset(refused))
    decreases = [
        HeldPlan(plan_id("\n".join((d.scope, *d.less)), ()), d.scope, d.sentence, d.actions, d.floor, d.brief)
        for d in held_decreases(left, rules)
    ]
    plans = [*brake.plans(approved.standing), *decreases]
    held = tuple(p for p in plans if not approved.release(p))
    stopped = {action for p in held for action in p.actions}
    return Judgement(
        allowed=tuple(action for action in left if action not in stopped),
        held=held,
        refused=tuple(refused.values()),
        released=tuple(p for p in plans if approved.release(p)),
        notes=tuple(brake.lowered(stopped)),
    )


def lowered_accounts(
    actions: Iterable[Action], snapshot: Snapshot, rules: PolicyRules, grounds: Grounds = Grounds()
) -> frozenset[str]:
    """Accounts of which a limit is lowered and `snapshot` does not tell what is used: `judge` decides by it, or
    shows it where cuts are allowed.
    """
    if rules.paused or rules.mode is not PolicyMode.SYNC:
        return frozenset()
    plan = set(actions)
    judge_ = Judge(snapshot, rules, grounds, made_by(plan))
    known = snapshot.used if Part.USAGE in snapshot.complete else {}
    return frozenset(
        action.account
        for action in plan
        if isinstance(action, SetLimits)
        and action.account not in known
        and action.account not in grounds.making | grounds.ending
        and judge_.lowered(action)
    )


def action_key(action: Action) -> str:
    """The same for equal actions, in every process and on every day."""
    meant = {f.name for f in fields(action) if f.compare}
    values = {name: value for name, value in asdict(action).items() if name in meant}
    return json.dumps([type(action).__name__, values], sort_keys=True, ensure_ascii=False)


def plan_id(scope: str, actions: Iterable[Action]) -> str:
    text = "\n".join([scope, *sorted(set(map(action_key, actions)))])
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_LENGTH]


def _refused(plan: Sequence[Action], judge_: Judge, bonds: Bonds) -> dict[Action, Refused]:
    roots = {a: Refused(a, *objection) for a in plan if (objection := judge_.objection(a))}
    marks = bonds.spread(roots)
    return {action: roots.get(action) or _along(action, marks[action]) for action in plan if action in marks}


def _along(action: Action, cause: Refused) -> Refused:
    return Refused(action, cause.why, f"{cause.sentence}; this goes with: {_line(cause.action)}")


def _line(action: Action) -> str:
    return f"{action.verb} {action.target()}"


class _Brake:
    """What of a plan is too much at once, or cuts a limit below what is used."""

    def __init__(
        self, left: Sequence[Action], judge_: Judge, bonds: Bonds, refused: frozenset[Action]
    ) -> None:
        self._left = left
        self._place = {action: number for number, action in enumerate(left)}
        self._judge = judge_
        self._rules = judge_.rules
        self._snapshot = judge_.snapshot
        self._ending = judge_.grounds.ending
        self._bonds = bonds
        self._refused = refused
        self._leaving: dict[str, set[str]] = {}
        for action in left:
            if isinstance(action, RemoveMember) and action.account not in self._ending:
                self._leaving.setdefault(action.account, set()).add(action.user)
        self._members = self._count_members()

    def plans(self, standing: Iterable[Standing] = ()) -> list[HeldPlan]:
        cluster = self._of_cluster()
        of_accounts = [] if cluster else [self._of_account(*each) for each in self._too_many().items()]
        found = [*cluster, *of_accounts, *self._cuts()]
        return [*found, *self._parts_of(standing, {plan.id for plan in found})]

    def _parts_of(self, standing: Iterable[Standing], known: Set[str]) -> Iterator[HeldPlan]:
        """What belongs to plans that wait already, under their ids."""
        keys = {action_key(action): action for action in self._left}
        for plan in standing:
            roots = [action for key, action in keys.items() if key in plan.keys]
            if roots and plan.id not in known:
                actions = self._with_companions(roots)
                yield HeldPlan(plan.id, plan.scope, plan.reason, actions)

    def _count_members(self) -> Mapping[str, int]:
        """Members by account, without those whom no pass changes; on several partitions they count once."""
        pairs = {(a.account, a.user) for a in self._snapshot.associations}
        counts: dict[str, int] = {}
        for account, user in pairs:
            if not self._judge.spares(user):
                counts[account] = counts.get(account, 0) + 1
        return counts

    def _too_many(self) -> dict[str, str]:
        """Accounts that lose too many members at once, and the sentence for each."""
        found = {}
        for account in sorted(self._leaving):
            count, members = len(self._leaving[account]), self._members.get(account, 0)
            if limit := self._exceeded(count, members):
                found[account] = (
                    f"{count} of the {members} members of {account} would be removed at once ({limit})"
                )
        return found

    def _exceeded(self, count: int, members: int) -> str:
        rules = self._rules
        if count > rules.max_removed_members:
            return f"max_removed_members is {rules.max_removed_members}"
        if count > rules.small_removal and count * 100 > rules.max_removed_percent * members:
            return f"max_removed_percent is {rules.max_removed_percent}"
        return ""

    def _of_account(self, account: str, sentence: str) -> HeldPlan:
        roots = [a for a in self._left if isinstance(a, RemoveMember) and a.account == account]
        return self._held(f"account {account}", sentence, roots)

    def _of_cluster(self) -> list[HeldPlan]:
        """One plan of all that is too much for the cluster as a whole; accounts held for themselves do not count."""
        gone, alone = self._gone(), self._too_many()
        reasons: list[str] = []
        roots: set[Action] = set()
        removals = [a for a in self._left if isinstance(a, RemoveMember) and a.account not in self._ending]
        if len(gone) > self._rules.max_removed_accounts:
            reasons.append(
                f"{len(gone)} accounts would be deleted or emptied at once: {_some(gone)} "
                f"(max_removed_accounts is {self._rules.max_removed_accounts})"
            )
            roots |= {a for a in self._left if _takes_away_in(a, gone, self._ending)}
        count = sum(len(users) for account, users in self._leaving.items() if account not in alone)
        members = sum(self._members.values())
        if limit := self._exceeded(count, members):
            reasons.append(
                f"{count} of the {members} members of the cluster would be removed at once ({limit})"
            )
            roots |= set(removals)
        if not reasons:
            return []
        reasons += alone.values()
        roots |= {removal for removal in removals if removal.account in alone}
        ordered = [action for action in self._left if action in roots]
        return [self._held(f"cluster {self._snapshot.cluster}", "; ".join(reasons), ordered)]

    def _gone(self) -> list[str]:
        """Accounts that are deleted or emptied. One that only goes because all below it went does not count."""
        deleted = {a.account for a in self._left if isinstance(a, DeleteAccount)}
        ended = {a.account for a in self._left if isinstance(a, ClusterAction)} & self._ending
        joined = {a.account for a in self._left if isinstance(a, AddMember)}
        emptied = {
            account
            for account, users in self._leaving.items()
            if len(users) >= self._members.get(account, 0) and account not in joined
        }
        bare = {account for account in deleted if self._snapshot.children_of(account)}
        return sorted((deleted - bare) | ended | emptied)

    def _cuts(self) -> list[HeldPlan]:
        if self._rules.limit_cuts is LimitCuts.ALLOW:
            return []
        found = []
        for action in self._left:
            if isinstance(action, SetLimits) and (sentence := self._cut(action)):
                found.append(self._held(f"account {action.account}", sentence, [action]))
        return sorted(found, key=lambda plan: (plan.scope, plan.id))

    def _cut(self, action: SetLimits) -> str:
        """What the limits would cut into, empty when nothing."""
        cuts = [
            _told(tres, now, then, spent)
            for tres, now, then, spent in self._lowered(action)
            if spent is None or spent > then
        ]
        if not cuts:
            return ""
        return (
            f"lowers limits of {action.account} (in the cluster's units): {'; '.join(cuts)}; where more is used than "
            "left, running jobs may be killed"
        )

    def lowered(self, stopped: Set[Action]) -> Iterator[str]:
        """A note for each account of which a limit is lowered now."""
        for action in self._left:
            if isinstance(action, SetLimits) and action not in stopped and (cuts := self._lowered(action)):
                told = "; ".join(_told(*cut) for cut in cuts)
                yield f"lowers limits of {action.account} (in the cluster's units): {told}"

    def _lowered(self, action: SetLimits) -> list[tuple[str, int | None, int, int | None]]:
        """Name, limit now, limit then, and what is used. An ordered end has stopped the jobs before: nothing."""
        if action.account in self._judge.grounds.making | self._ending:
            return []
        used = self._snapshot.used.get(action.account, {}) if Part.USAGE in self._snapshot.complete else {}
        lowered = sorted(self._judge.lowered(action).items())
        return [(tres, now, then, used.get(tres)) for tres, (now, then) in lowered]

    def _held(self, scope: str, reason: str, roots: Sequence[Action]) -> HeldPlan:
        actions = self._with_companions(roots)
        return HeldPlan(plan_id(scope, actions), scope, reason, actions)

    def _with_companions(self, roots: Sequence[Action]) -> tuple[Action, ...]:
        along = self._bonds.spread(dict.fromkeys(roots, True), beside=self._refused)
        return tuple(sorted(along, key=self._place.__getitem__))


def _takes_away_in(action: Action, gone: Sequence[str], ending: Set[str]) -> bool:
    if not isinstance(action, ClusterAction) or action.account not in gone:
        return False
    return isinstance(action, RemoveMember | DeleteAccount) or action.account in ending


def _told(tres: str, now: int | None, then: int, spent: int | None) -> str:
    known = "what is used is not known" if spent is None else f"{spent} are used"
    return f"{tres} from {'unlimited' if now is None else now} to {then}, {known}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_AT_MOST])
    return shown if len(names) <= NAMED_AT_MOST else f"{shown} and {len(names) - NAMED_AT_MOST} more"
