# SPDX-License-Identifier: MIT
"""What a plan costs people, and what of that is too much: at once, or together with what happened before.

Members who leave one account, members who leave the cluster, and accounts that are deleted or emptied are limited by
number and by percent; every cost has a budget for an hour and a day. The same charge again costs nothing: a removal
that failed may be tried as often as it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from agent.core.actions import Action, ClusterAction
from agent.core.policy import COST_SENTENCES, Charge, Cost, History
from agent.plan.policy.rules import RuleBook

NAMED_AT_MOST = 5
# So many accounts that lose too much are a plan each; more are one, which a person can read and approve.
PLANS_APART_AT_MOST = 5


@dataclass(frozen=True, slots=True)
class Excess:
    """What of a plan is too much together. `is_due_to_history`: by itself it would not be."""

    scope: str
    sentence: str
    roots: tuple[Action, ...]
    is_due_to_history: bool = False


@dataclass(frozen=True, slots=True)
class _Window:
    """The charges of the last hour or day; `name` as in `20 an hour`."""

    name: str
    unit: str
    charges: frozenset[Charge]
    most: Callable[[Cost], int]


class BudgetCheck:
    """What the actions `left` of one plan cost people, held against limits and budgets.

    What an order ends, and what somebody empties on purpose, costs one account each, whoever is in it. What only goes
    with a removal, or with the end of an account, costs nothing beside it.
    """

    def __init__(self, left: Sequence[Action], book: RuleBook, history: History) -> None:
        self._left = left
        self._book = book
        self._rules = book.rules
        self._cluster = f"cluster {book.snapshot.cluster}"
        self._approved = history.approved
        # Who is out of an account within the hour is out of its group, too: that was paid for already.
        self._paid = history.hour | history.approved
        self._windows = (
            _Window("hour", "an hour", history.hour, lambda cost: self._rules.budget(cost).hour),
            _Window("day", "a day", history.day | history.hour, lambda cost: self._rules.budget(cost).day),
        )
        declared = {action: book.charges(action) for action in left}
        removed = {c for found in declared.values() for c in found if c.cost is Cost.MEMBERS_REMOVED}
        ending, on_purpose = book.context.ending, book.context.deliberate
        whole = {a.for_account for a in left if isinstance(a, ClusterAction)} & ending
        whole |= {charge.account for charge in removed} & on_purpose
        # Users who leave, by account.
        self.leaving: dict[str, set[str]] = {}
        for charge in removed:
            if charge.account and charge.account not in whole:
                self.leaving.setdefault(charge.account, set()).add(charge.user)
        self._declared, self._whole, self._ended = declared, whole, whole & ending
        self._charges = {action: frozenset(self._charged(action, declared[action])) for action in left}
        self._place = {action: number for number, action in enumerate(left)}

    @cached_property
    def _emptied(self) -> Set[str]:
        """Return the accounts that lose all members, those that are ended on purpose included."""
        left_by_all = (name for name, users in self.leaving.items() if len(users) >= len(self._present(name)))
        return self._whole.union(left_by_all)

    @cached_property
    def gone(self) -> frozenset[str]:
        """Return the accounts that are deleted or emptied."""
        declared = (charge for found in self._declared.values() for charge in found)
        return frozenset(c.account for c in declared if c.cost is Cost.ACCOUNTS_EMPTIED) | self._emptied

    @cached_property
    def _removals(self) -> frozenset[Charge]:
        """Return the members who leave an account that is not ended as a whole."""
        return frozenset(
            Charge(Cost.MEMBERS_REMOVED, account, user)
            for account, users in self.leaving.items()
            for user in users
        )

    @cached_property
    def _bearers(self) -> Mapping[Charge, Sequence[Action]]:
        """Return the actions that have each charge."""
        found: dict[Charge, list[Action]] = {}
        for action, charges in self._charges.items():
            for charge in charges:
                found.setdefault(charge, []).append(action)
        return found

    def of(self, action: Action) -> frozenset[Charge]:
        """Return what an action costs people."""
        return self._charges.get(action, frozenset())

    def _present(self, account: str) -> frozenset[str]:
        """Return the members of an account, without those whom no pass changes."""
        found = self._book.snapshot.users_of(account)
        return frozenset(user for user in found if not self._book.spares(user))

    @cached_property
    def _members(self) -> int:
        """Return how many these are in all accounts together; on several partitions they count once."""
        return sum(not self._book.spares(user) for _, user in self._book.snapshot.members())

    def accounts_in_excess(self) -> dict[str, Excess]:
        """Return what is too much for one account, by account."""
        found = {}
        for account, users in sorted(self.leaving.items()):
            present = self._present(account)
            members = len(present)
            charges = {Charge(Cost.MEMBERS_REMOVED, account, user) for user in users}
            head = f"of the {members} members of {account} would be removed at once"
            if limit := self._exceeded(len(users), members):
                sentence = f"{len(users)} {head} ({limit})"
                found[account] = Excess(f"account {account}", sentence, self._bearing(charges))
                continue
            for window in self._windows:
                before = {
                    charge
                    for charge in window.charges
                    if charge.cost is Cost.MEMBERS_REMOVED and charge.account == account
                }
                new = charges - before - self._approved
                ever = present | {charge.user for charge in before}
                if before and new and (limit := self._exceeded(len(before | new), len(ever), window)):
                    sentence = (
                        f"{len(new)} {head}, after {len(before)} within the last {window.name} ({limit})"
                    )
                    found[account] = Excess(f"account {account}", sentence, self._bearing(new), True)
                    break
        return found

    def cluster_in_excess(self, alone: Mapping[str, Excess], aside: Set[Action]) -> Excess | None:
        """Return what is too much at once for the cluster as a whole, with the accounts that are too much `alone`,
        whose members do not count; many of these are too much as well. `aside`: actions that wait already.
        """
        taken: frozenset[Charge] = frozenset().union(*map(self.of, aside))
        free = taken | self._approved
        gone = sorted(self.gone - {c.account for c in free if c.cost is Cost.ACCOUNTS_EMPTIED})
        sentences: list[str] = []
        roots: set[Action] = set()
        if len(gone) > self._rules.max_removed_accounts:
            sentences.append(
                f"{len(gone)} accounts would be deleted or emptied at once: {some(gone)} "
                f"(max_removed_accounts is {self._rules.max_removed_accounts})"
            )
            roots.update(self._bearing(Charge(Cost.ACCOUNTS_EMPTIED, account) for account in gone))
        removed = self._removals - taken
        count = sum(charge.account not in alone for charge in removed)
        if removed and (limit := self._exceeded(count, self._members)):
            sentences.append(
                f"{count} of the {self._members} members of the cluster would be removed at once ({limit})"
            )
            roots.update(self._bearing(removed))
        if len(alone) > PLANS_APART_AT_MOST:
            sentences.append(self._many_alone(alone))
        elif sentences:
            sentences += [excess.sentence for excess in alone.values()]
        else:
            return None
        roots.update(action for excess in alone.values() for action in excess.roots)
        ordered = tuple(action for action in self._left if action in roots and action not in aside)
        due = any(excess.is_due_to_history for excess in alone.values())
        return Excess(self._cluster, "; ".join(sentences), ordered, due)

    def over_budget(self, cost: Cost, aside: Set[Action]) -> Excess | None:
        """Return what overdraws the cluster's budget of one cost. `aside`: actions that wait anyway."""
        planned = {
            charge
            for charge, bearers in self._bearers.items()
            if charge.cost is cost and charge not in self._approved and not aside >= set(bearers)
        }
        for window in self._windows:
            before = {charge for charge in window.charges if charge.cost is cost}
            new = planned - before
            if new and (limit := self._overdrawn(cost, new, before, window)):
                sentence = f"{self._sentence(cost, new, before, window)} ({limit})"
                roots = tuple(action for action in self._bearing(new) if action not in aside)
                return Excess(self._cluster, sentence, roots, len(new) <= self._rules.budget(cost).hour)
        return None

    def _many_alone(self, alone: Mapping[str, Excess]) -> str:
        count = sum(len(self.leaving[account]) for account in alone)
        return (
            f"{count} members of {len(alone)} accounts would be removed at once, more than each of these may lose: "
            f"{some(sorted(alone))} (max_removed_members is {self._rules.max_removed_members}, max_removed_percent is "
            f"{self._rules.max_removed_percent})"
        )

    def _overdrawn(self, cost: Cost, new: Set[Charge], before: Set[Charge], window: _Window) -> str:
        """Return which limit would be passed; empty when none. Of people as a whole there is no percentage: nobody
        knows here how many the directory has.
        """
        total = len(new) + len(before)
        if cost is Cost.MEMBERS_REMOVED:
            left: dict[str, set[str]] = {}
            for charge in before:
                if charge.account:
                    left.setdefault(charge.account, set()).add(charge.user)
            gone = sum(len(users - self._present(account)) for account, users in left.items())
            inside = sum(bool(charge.account) for charge in new | before)
            if before and (limit := self._exceeded(inside, self._members + gone, window)):
                return limit
        if total <= window.most(cost):
            return ""
        if window.name == "hour" and cost is Cost.MEMBERS_REMOVED:
            return f"max_removed_members is {self._rules.max_removed_members}"
        if window.name == "hour" and cost is Cost.ACCOUNTS_EMPTIED:
            return f"max_removed_accounts is {self._rules.max_removed_accounts}"
        return f"{cost} is {window.most(cost)} {window.unit}"

    def _sentence(self, cost: Cost, new: Set[Charge], before: Set[Charge], window: _Window) -> str:
        after = f", after {len(before)} within the last {window.name}" if before else ""
        if cost is Cost.MEMBERS_REMOVED:
            people = sorted(charge.user for charge in new if not charge.account)
            inside, members = len(new) - len(people), self._members
            told = (
                [f"{inside} of the {members} members of the cluster would be removed at once"]
                if inside
                else []
            )
            if people:
                what = "of the directory would be disabled, renamed or changed at once"
                told.append(f"{len(people)} user{'' if len(people) == 1 else 's'} {what}: {some(people)}")
            return f"{'; '.join(told)}{after}"
        names = some(sorted({charge.account or charge.user for charge in new}))
        return (
            f"{COST_SENTENCES[cost].format(len(new), s='' if len(new) == 1 else 's')} at once: {names}{after}"
        )

    def _exceeded(self, count: int, members: int, window: _Window | None = None) -> str:
        """Return which limit so many leavers of so many members pass; empty when none."""
        rules = self._rules
        if window is not None and window.name == "day":
            if count > window.most(Cost.MEMBERS_REMOVED):
                return f"{Cost.MEMBERS_REMOVED} is {window.most(Cost.MEMBERS_REMOVED)} {window.unit}"
        elif count > rules.max_removed_members:
            return f"max_removed_members is {rules.max_removed_members}"
        if count > rules.small_removal and count * 100 > rules.max_removed_percent * members:
            return f"max_removed_percent is {rules.max_removed_percent}"
        return ""

    def _bearing(self, charges: Iterable[Charge]) -> tuple[Action, ...]:
        """Return the actions that have any of these costs, in their order."""
        found = {action for charge in charges for action in self._bearers.get(charge, ())}
        return tuple(sorted(found, key=self._place.__getitem__))

    def _charged(self, action: Action, declared: Iterable[Charge]) -> Iterator[Charge]:
        if isinstance(action, ClusterAction) and action.for_account in self._ended:
            yield Charge(Cost.ACCOUNTS_EMPTIED, action.for_account)
        for charge in declared:
            if charge.cost is Cost.MEMBERS_REMOVED:
                if charge.account in self._emptied:
                    yield Charge(Cost.ACCOUNTS_EMPTIED, charge.account)
                if charge.account not in self._whole:
                    yield charge
            elif charge.cost is Cost.ACCOUNTS_EMPTIED:
                yield charge
            # What goes along is no cost of its own: its account goes, or its user leaves that, here or before.
            elif charge.account not in self.gone and charge.user not in self.leaving.get(charge.account, ()):
                paid = {
                    Charge(Cost.MEMBERS_REMOVED, charge.account, charge.user),
                    Charge(Cost.ACCOUNTS_EMPTIED, charge.account),
                }
                if charge.cost is not Cost.GROUP_MEMBERS_REMOVED or self._paid.isdisjoint(paid):
                    yield charge


def some(names: Sequence[str]) -> str:
    """Return the first of them, and how many more there are."""
    shown = ", ".join(names[:NAMED_AT_MOST])
    return shown if len(names) <= NAMED_AT_MOST else f"{shown} and {len(names) - NAMED_AT_MOST} more"
