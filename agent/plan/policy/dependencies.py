# SPDX-License-Identifier: MIT
"""Which actions of a plan depend on each other: where one is held or refused, those that need it are as well.

Taken from what the actions declare to make, need, end and await:

an action falls        and with it
that makes a thing     all that need the thing, unless it stands already: members of an account, accounts below it
that ends a thing      all that await its end: a removal whose jobs stay, the deletion of an account with members
that awaits an end     what ends it in the same account for no other action: its jobs are not cancelled either
in an ordered account  all other steps of an account that an order makes or ends; members never hold an order back
an old name's removal  that the person joins the same account under the new name
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TypeVar

from agent.core.actions import Action, ClusterObject, ObjectKind, Where, objects_made
from agent.core.model import Snapshot

Mark = TypeVar("Mark")
NO_RENAMED: Mapping[tuple[str, str], str] = {}


class Dependencies:
    """The dependencies between the actions of one plan. `ordered`: accounts that an order makes or ends. `renamed`: by
    account and new username, the old one.
    """

    def __init__(
        self,
        actions: Iterable[Action],
        snapshot: Snapshot,
        ordered: Set[str] = frozenset(),
        renamed: Mapping[tuple[str, str], str] = NO_RENAMED,
    ) -> None:
        self._snapshot = snapshot
        self._along: dict[Action, list[Action]] = defaultdict(list)
        # What a helper is done for, and the helpers of an action.
        self._served: dict[Action, list[Action]] = defaultdict(list)
        self._helpers: dict[Action, list[Action]] = defaultdict(list)
        self._all = list(actions)
        self._tie_orders(ordered)
        self._tie_needs()
        self._tie_ends()
        self._tie_last_accounts()
        if renamed:
            self._tie_names(renamed)

    def falling_with(
        self, marked: Mapping[Action, Mark], *, excluded: Set[Action] = frozenset()
    ) -> dict[Action, Mark]:
        """Return the marked actions and all that fall with them, with the mark that reached each first.

        `excluded`: actions that do not happen for other reasons; they get no mark of these.
        """
        found = dict(marked)
        left: dict[Action, int] = {}
        queue = deque(found)
        while queue:
            action = queue.popleft()
            for other in (*self._along.get(action, ()), *self._without_purpose(action, left, excluded)):
                if other not in found and other not in excluded:
                    found[other] = found[action]
                    queue.append(other)
        return found

    def _without_purpose(
        self, action: Action, left: dict[Action, int], excluded: Set[Action]
    ) -> Iterator[Action]:
        """Yield what served this action and serves nothing that happens any more. `left`: how many each serves."""
        for helper in self._helpers.get(action, ()):
            if helper not in left:
                left[helper] = sum(served not in excluded for served in self._served[helper])
            left[helper] -= 1
            if left[helper] == 0:
                yield helper

    def _tie_orders(self, ordered: Set[str]) -> None:
        """Make all steps of each ordered account depend on each other: where one falls, all do."""
        steps: dict[str, list[Action]] = defaultdict(list)
        for action in self._all:
            if action.where is Where.CLUSTER and action.for_account in ordered and not is_join(action):
                steps[action.for_account].append(action)
        for several in steps.values():
            for one, other in zip(several, (*several[1:], *several[:1]), strict=True):
                if one != other:
                    self._along[one].append(other)

    def _tie_needs(self) -> None:
        """Tie actions to what makes the things that they need and that do not stand yet."""
        makers: dict[ClusterObject, list[Action]] = defaultdict(list)
        for action in self._all:
            for thing in action.objects(action.makes):
                members = self._snapshot.users_of(thing.account) if thing.kind is ObjectKind.MEMBER else ()
                stands = thing.kind is ObjectKind.ACCOUNT and thing.account in self._snapshot.accounts
                if not (stands or thing.of in members):
                    makers[thing].append(action)
        for action in self._all:
            for thing in action.objects(action.needs):
                for maker in makers.get(thing, ()):
                    if maker != action:
                        self._along[maker].append(action)

    def _tie_ends(self) -> None:
        """Tie actions to what ends the things that must be gone before; in the same account both ways."""
        enders: dict[tuple[ObjectKind, str], list[tuple[ClusterObject, Action]]] = defaultdict(list)
        for action in self._all:
            for thing in action.objects(action.ends):
                # An account goes from below the parent that it has, whatever the plan was made from.
                child = self._snapshot.accounts.get(thing.of) if thing.kind is ObjectKind.CHILD else None
                if child is not None:
                    thing = thing._replace(account=child.parent or "")
                enders[thing.kind, thing.account].append((thing, action))
        for action in self._all:
            awaited = [
                ender
                for thing in action.objects(action.awaits)
                for ended, ender in enders.get((thing.kind, thing.account), ())
                if ended.covers(thing) and ender != action
            ]
            for ender in dict.fromkeys(awaited):
                self._along[ender].append(action)
                if ender.for_account == action.for_account:
                    self._helpers[action].append(ender)
                    self._served[ender].append(action)

    def _tie_last_accounts(self) -> None:
        """Tie the removal from a default account, which does not move, to all other removals of that user."""
        leaving: dict[str, list[tuple[str, Action]]] = defaultdict(list)
        moved: set[tuple[str, str]] = set()
        for action in self._all:
            for kind, account, user in action.objects(action.ends):
                if kind is ObjectKind.MEMBER:
                    leaving[user].append((account, action))
                if kind is ObjectKind.DEFAULT:
                    moved.add((account, user))
        for user, removals in leaving.items():
            default = self._snapshot.default_accounts.get(user, "")
            last = [action for account, action in removals if account == default]
            if (default, user) not in moved:
                for one in last:
                    for _, other in removals:
                        if other != one:
                            self._along[other].append(one)

    def _tie_names(self, renamed: Mapping[tuple[str, str], str]) -> None:
        """Tie what brings a person in under the new name to the removal of the old one."""
        leaving: dict[tuple[str, str], list[Action]] = defaultdict(list)
        for action in self._all:
            for kind, account, user in action.objects(action.ends):
                if kind is ObjectKind.MEMBER:
                    leaving[account, user].append(action)
        for action in self._all:
            for kind, account, user in action.objects(action.makes):
                if kind is ObjectKind.MEMBER and (account, user) in renamed:
                    for removal in leaving.get((account, renamed[account, user]), ()):
                        self._along[removal].append(action)


def is_join(action: Action) -> bool:
    """Return whether a user becomes a member by it: an order can do without."""
    return any(objects_made([action], ObjectKind.MEMBER))
