# SPDX-License-Identifier: MIT
"""What a plan costs people, and what of that is too much: at once, or together with what happened before.

Members who leave one account, members who leave the cluster, and accounts that are deleted or emptied are limited by
number and by percent; every cost has a budget for an hour and a day. The same charge again costs nothing: a removal
that failed may be tried as often as it takes. Nor does what a person has approved. Percentages go by who was in before:
who joined within the last day does not count, so that an exchange of all members counts as emptied over passes, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from agent.core.actions import Action, Where
from agent.core.policy import COST_SENTENCES, Charge, Cost, History
from agent.core.printable import shortlist
from agent.plan.policy.rules import RuleBook

NAMED_AT_MOST = 5
# What costs nothing where the same was paid for elsewhere within the hour.
GOES_ALONG = frozenset({Cost.GROUP_MEMBERS_REMOVED, Cost.PEOPLE_RENAMED})
# So many accounts that lose too much are a plan each; more are one, which a person can read and approve.
PLANS_APART_AT_MOST = 5


@dataclass(frozen=True, slots=True)
class Excess:
    """What of a plan is too much together."""

    scope: str
    sentence: str
    roots: tuple[Action, ...]
    # Those of which it is too much by itself.
    accounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Window:
    """The charges of the last hour or day."""

    # As in `20 an hour`.
    name: str
    unit: str
    charges: frozenset[Charge]
    most: Callable[[Cost], int]


class BudgetCheck:
    """What the actions `left` of one plan cost people, held against limits and budgets.

    What an order ends, and what a person empties on purpose, costs one account each, whoever is in it. What only goes
    with a removal, or with the end of an account, costs nothing in addition.
    """

    def __init__(
        self,
        left: Sequence[Action],
        book: RuleBook,
        history: History,
        approved: Set[Action] = frozenset(),
    ) -> None:
        self._left = left
        self._book = book
        self._rules = book.rules
        self._cluster = f"cluster {book.snapshot.cluster}"
        self._joined = history.joined
        # Who is out of an account within the hour is out of its group, too: that was paid for already.
        self._paid = history.paid
        self._windows = (
            _Window("hour", "an hour", history.hour, lambda cost: self._rules.budget(cost).hour),
            _Window("day", "a day", history.day | history.hour, lambda cost: self._rules.budget(cost).day),
        )
        declared = {action: book.charges(action) for action in left}
        removed = {c for found in declared.values() for c in found if c.cost is Cost.MEMBERS_REMOVED}
        ending, on_purpose = book.context.ending, book.context.deliberate
        whole = {action.for_account for action in left if action.where is Where.CLUSTER} & ending
        whole |= {charge.account for charge in removed} & on_purpose
        # Users who leave, by account.
        self.leaving: dict[str, set[str]] = {}
        for charge in removed:
            if charge.account and charge.account not in whole:
                self.leaving.setdefault(charge.account, set()).add(charge.user)
        self._declared, self._whole, self._ended = declared, whole, whole & ending
        self._charges = {action: frozenset(self._charged(action, declared[action])) for action in left}
        self._place = {action: number for number, action in enumerate(left)}
        # A person has approved one leaving: who came back and leaves again is judged again.
        self._approved_now = frozenset[Charge]().union(*(self._charges[action] for action in approved))
        self._approved = history.approved | self._approved_now

    @cached_property
    def _emptied(self) -> Set[str]:
        """Return the accounts that lose all members who were in before, those that are ended on purpose included."""
        left_by_all = (name for name, users in self.leaving.items() if users >= self._present(name))
        return self._whole.union(left_by_all)

    @cached_property
    def gone(self) -> frozenset[str]:
        """Return the accounts that are deleted or emptied."""
        declared = (charge for found in self._declared.values() for charge in found)
        return frozenset(c.account for c in declared if c.cost is Cost.ACCOUNTS_EMPTIED) | self._emptied

    @cached_property
    def _unapproved_leavers(self) -> Mapping[str, frozenset[str]]:
        """Return by account the users who leave and of whom a person has not approved that."""
        found = {
            account: frozenset(
                user
                for user in users
                if Charge(Cost.MEMBERS_REMOVED, account, user) not in self._approved_now
            )
            for account, users in self.leaving.items()
        }
        return {account: users for account, users in found.items() if users}

    @cached_property
    def _bearers(self) -> Mapping[Charge, Sequence[Action]]:
        """Return the actions that have each charge."""
        found: dict[Charge, list[Action]] = {}
        for action, charges in self._charges.items():
            for charge in charges:
                found.setdefault(charge, []).append(action)
        return found

    def sentence(self, actions: Iterable[Action]) -> str:
        """Return what these actions cost people all together, in words."""
        charges = {charge for action in actions for charge in self.of(action)}
        sentences = []
        for cost in Cost:
            found = {charge for charge in charges if charge.cost is cost}
            if cost is Cost.MEMBERS_REMOVED and (inside := {charge for charge in found if charge.account}):
                accounts = sorted({charge.account for charge in inside})
                sentences.append(
                    f"{len(inside)} members of {len(accounts)} accounts would be removed: {abbreviated(accounts)}"
                )
            elif found:
                sentences.append(self._sentence(cost, found, frozenset(), self._windows[0]))
        return "; ".join(sentences)

    def of(self, action: Action) -> frozenset[Charge]:
        """Return what an action costs people."""
        return self._charges.get(action, frozenset())

    def _present(self, account: str) -> frozenset[str]:
        """Return the members of an account who were in before, without those whom no pass changes. Where all of them
        have joined lately, these are all members.
        """
        found = self._members_of(account)
        return found - self._joined.get(account, frozenset()) or found

    def _known(self, account: str, users: Set[str]) -> Set[str]:
        """Return those of the users who have not joined an account lately, while there are such members."""
        lately = self._joined.get(account, frozenset())
        return users - lately if self._members_of(account) - lately else users

    def _was_in(self, charge: Charge) -> bool:
        """Return whether a leaver was in the account before."""
        return bool(self._known(charge.account, {charge.user}))

    def _members_of(self, account: str) -> frozenset[str]:
        found = self._book.snapshot.users_of(account)
        return frozenset(user for user in found if not self._book.spares(user))

    @cached_property
    def _members(self) -> int:
        """Return how many these are in all accounts together; on several partitions they count once."""
        seen = self._book.snapshot
        return self._everybody - sum(len(users & seen.users_of(name)) for name, users in self._joined.items())

    @cached_property
    def _everybody(self) -> int:
        """Return the same with those who have joined lately."""
        return sum(not self._book.spares(user) for _, user in self._book.snapshot.members())

    def accounts_in_excess(self) -> list[Excess]:
        """Return what is too much for one account, or for several that the same people leave: who is renamed in five
        allocations is looked at once.
        """
        alone = self._accounts_in_excess()
        groups: dict[frozenset[str], list[str]] = {}
        for account in alone:
            groups.setdefault(self._unapproved_leavers[account], []).append(account)
        found = []
        for accounts in groups.values():
            first = alone[accounts[0]]
            if len(accounts) > 1:
                roots = tuple(action for account in accounts for action in alone[account].roots)
                sentence = f"{first.sentence}; the same people leave {abbreviated(accounts[1:])}"
                first = Excess(f"accounts {abbreviated(accounts)}", sentence, roots, tuple(accounts))
            found.append(first)
        return found

    def _accounts_in_excess(self) -> dict[str, Excess]:
        found = {}
        for account, users in sorted(self._unapproved_leavers.items()):
            present = self._present(account)
            members = len(present)
            charges = {Charge(Cost.MEMBERS_REMOVED, account, user) for user in users}
            head = f"of the {members} members of {account} would be removed at once"
            approved = len(self.leaving[account]) - len(users)
            tail = f", besides {approved} of whom that is approved" if approved else ""
            if limit := self._exceeded(
                len(users), len(self._known(account, users)), members, len(self._members_of(account))
            ):
                sentence = f"{len(users)} {head}{tail} ({limit})"
                found[account] = Excess(f"account {account}", sentence, self._bearing(charges), (account,))
                continue
            for window in self._windows:
                before = {
                    charge
                    for charge in window.charges
                    if charge.cost is Cost.MEMBERS_REMOVED and charge.account == account
                }
                new = charges - before
                gone = {charge.user for charge in before}
                ever = present | gone
                leaving = {charge.user for charge in new} | gone
                known = len(self._known(account, leaving))
                everybody = len(self._members_of(account) | gone)
                limit = self._exceeded(len(leaving), known, len(ever), everybody, window)
                if before and new and limit:
                    when = f", after {len(before)} within the last {window.name}"
                    sentence = f"{len(new)} {head}{when}{tail} ({limit})"
                    found[account] = Excess(f"account {account}", sentence, self._bearing(new), (account,))
                    break
        return found

    def cluster_in_excess(self, alone: Sequence[Excess], waiting: Set[Action]) -> Excess | None:
        """Return what is too much at once for the cluster as a whole, with the accounts that are too much `alone`,
        whose members do not count; many of these are too much as well. What is `waiting` already is judged no more.
        """
        taken: frozenset[Charge] = frozenset().union(*map(self.of, waiting))
        free = taken | self._approved
        gone = sorted(self.gone - {c.account for c in free if c.cost is Cost.ACCOUNTS_EMPTIED})
        sentences: list[str] = []
        roots: set[Action] = set()
        if len(gone) > self._rules.max_removed_accounts:
            sentences.append(
                f"{len(gone)} accounts would be deleted or emptied at once: {abbreviated(gone)} "
                f"(max_removed_accounts is {self._rules.max_removed_accounts})"
            )
            roots.update(self._bearing(Charge(Cost.ACCOUNTS_EMPTIED, account) for account in gone))
        by_itself = {action for excess in alone for action in excess.roots}
        removed = {
            Charge(Cost.MEMBERS_REMOVED, account, user)
            for account, users in self._unapproved_leavers.items()
            for user in users
        } - taken
        others = [charge for charge in removed if by_itself.isdisjoint(self._bearers.get(charge, ()))]
        count, known = len(others), sum(map(self._was_in, others))
        if removed and (limit := self._exceeded(count, known, self._members, self._everybody)):
            sentences.append(
                f"{count} of the {self._members} members of the cluster would be removed at once, "
                f"{self._where(removed)} ({limit})"
            )
            roots.update(self._bearing(removed))
        if len(alone) > PLANS_APART_AT_MOST:
            sentences.append(self._many_alone(alone))
        elif sentences:
            sentences += [excess.sentence for excess in alone]
        else:
            return None
        roots |= by_itself
        ordered = tuple(action for action in self._left if action in roots and action not in waiting)
        return Excess(self._cluster, "; ".join(sentences), ordered)

    def _where(self, charges: Iterable[Charge]) -> str:
        """Return the accounts above those that have these charges, most charges first: the projects, in words."""
        accounts = self._book.snapshot.accounts
        counted: dict[str, int] = {}
        for charge in charges:
            standing = accounts.get(charge.account)
            above = (standing.parent if standing else "") or charge.account
            counted[above] = counted.get(above, 0) + 1
        ranked = sorted(counted, key=lambda name: (-counted[name], name))
        return f"below {abbreviated([f'{name} ({counted[name]})' for name in ranked])}"

    def over_budget(self, cost: Cost, waiting: Set[Action]) -> Excess | None:
        """Return what overdraws the cluster's budget of one cost. `waiting`: actions that wait anyway."""
        planned = {
            charge
            for charge, bearers in self._bearers.items()
            if charge.cost is cost and charge not in self._approved and not waiting >= set(bearers)
        }
        for window in self._windows:
            before = {charge for charge in window.charges if charge.cost is cost}
            new = planned - before
            if new and (limit := self._overdrawn(cost, new, before, window)):
                sentence = f"{self._sentence(cost, new, before, window)} ({limit})"
                roots = tuple(action for action in self._bearing(new) if action not in waiting)
                return Excess(self._cluster, sentence, roots)
        return None

    def _many_alone(self, alone: Sequence[Excess]) -> str:
        accounts = sorted(account for excess in alone for account in excess.accounts)
        count = sum(len(self._unapproved_leavers[account]) for account in accounts)
        return (
            f"{count} members of {len(accounts)} accounts would be removed at once, more than each of these may lose: "
            f"{abbreviated(accounts)} (max_removed_members is {self._rules.max_removed_members}, max_removed_percent "
            f"is {self._rules.max_removed_percent})"
        )

    def _overdrawn(self, cost: Cost, new: Set[Charge], before: Set[Charge], window: _Window) -> str:
        """Return which limit would be passed; empty when none. Of people as a whole there is no percentage: it
        is unknown here how many the directory has.
        """
        total = len(new) + len(before)
        if cost is Cost.MEMBERS_REMOVED and before:
            left: dict[str, set[str]] = {}
            for charge in before:
                if charge.account:
                    left.setdefault(charge.account, set()).add(charge.user)
            gone = sum(len(users - self._present(account)) for account, users in left.items())
            inside = [charge for charge in new | before if charge.account]
            known = sum(map(self._was_in, inside))
            old, everybody = self._members + gone, self._everybody + gone
            if limit := self._exceeded(len(inside), known, old, everybody, window):
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
            parts = []
            if inside:
                where = self._where(charge for charge in new if charge.account)
                parts.append(
                    f"{inside} of the {members} members of the cluster would be removed at once, {where}"
                )
            if people:
                what = "of the directory would be disabled, renamed or changed at once"
                parts.append(
                    f"{len(people)} user{'' if len(people) == 1 else 's'} {what}: {abbreviated(people)}"
                )
            return f"{'; '.join(parts)}{after}"
        names = abbreviated(sorted({charge.account or charge.user for charge in new}))
        return (
            f"{COST_SENTENCES[cost].format(len(new), s='' if len(new) == 1 else 's')} at once: {names}{after}"
        )

    def _exceeded(
        self, count: int, known: int, members: int, everybody: int, window: _Window | None = None
    ) -> str:
        """Return which limit so many leavers pass; empty when none. `known` of them are among the `members` who were in
        before; `everybody` counts those who have joined lately, too: who joins makes no room for others to leave, and
        is no less a member.
        """
        rules = self._rules
        if window is not None and window.name == "day":
            if count > window.most(Cost.MEMBERS_REMOVED):
                return f"{Cost.MEMBERS_REMOVED} is {window.most(Cost.MEMBERS_REMOVED)} {window.unit}"
        elif count > rules.max_removed_members:
            return f"max_removed_members is {rules.max_removed_members}"
        for leavers, of in ((known, members), (count, everybody)):
            if leavers > rules.small_removal and leavers * 100 > rules.max_removed_percent * of:
                return f"max_removed_percent is {rules.max_removed_percent}"
        return ""

    def _bearing(self, charges: Iterable[Charge]) -> tuple[Action, ...]:
        """Return the actions that have any of these costs, in their order."""
        found = {action for charge in charges for action in self._bearers.get(charge, ())}
        return tuple(sorted(found, key=self._place.__getitem__))

    def _charged(self, action: Action, declared: Iterable[Charge]) -> Iterator[Charge]:
        if action.where is Where.CLUSTER and action.for_account in self._ended:
            yield Charge(Cost.ACCOUNTS_EMPTIED, action.for_account)
        for charge in declared:
            if charge.cost is Cost.MEMBERS_REMOVED:
                if charge.account in self._emptied:
                    yield Charge(Cost.ACCOUNTS_EMPTIED, charge.account)
                if charge.account not in self._whole:
                    yield charge
            elif charge.cost is Cost.ACCOUNTS_EMPTIED:
                yield charge
            # What follows from another action costs nothing more: its account is deleted, or its user leaves that.
            elif charge.account not in self.gone and charge.user not in self.leaving.get(charge.account, ()):
                paid = {
                    Charge(Cost.MEMBERS_REMOVED, charge.account, charge.user),
                    Charge(Cost.ACCOUNTS_EMPTIED, charge.account),
                }
                if charge.cost is Cost.PEOPLE_RENAMED:
                    # In the directory, in Waldur and on the cluster it is one change of a name.
                    paid = {charge}
                if charge.cost not in GOES_ALONG or self._paid.isdisjoint(paid):
                    yield charge


def abbreviated(names: Sequence[str]) -> str:
    return shortlist(names, NAMED_AT_MOST)
