# SPDX-License-Identifier: MIT
"""Which actions of a plan go together, so that what is held or refused takes along what would be half without it.

what does not happen               does not happen either
CreateAccount                      all that is for this account: members, limits, QoS, accounts below it
a step of an account's deletion    the whole deletion, and that of the account above it
RemoveMember                       the user's MoveDefaultAccount and CancelJobs, and the other way round;
                                   the removal from the default account, when the user leaves that for good
every RemoveMember of an account   the account's CancelJobs, and the BlockSubmission before it
CreateQos, AddMember               the SetQos, the MoveDefaultAccount that need them
a step of an account that an order makes or ends   all other steps; members never hold an order back
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TypeVar

from agent.core.actions import (
    Action,
    AddMember,
    BlockMember,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    CreateQos,
    DeleteAccount,
    DeleteQos,
    MoveAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetQos,
)
from agent.core.model import Snapshot
from agent.core.waldur_actions import ClaimAccount

Mark = TypeVar("Mark")

ENDING_STEPS = (RemoveMember, BlockMember, BlockSubmission, CancelJobs, DeleteAccount, DeleteQos)


def seat(action: ClusterAction) -> str:
    """The account that an action is about. A default account moves for the sake of the account that it leaves."""
    if isinstance(action, MoveDefaultAccount):
        return action.before or action.account
    return action.account


class Bonds:
    """The bonds between the actions of one plan. `ordered`: accounts that an order makes or ends."""

    def __init__(
        self, actions: Iterable[Action], snapshot: Snapshot, ordered: Set[str] = frozenset()
    ) -> None:
        self._snapshot = snapshot
        self._along: dict[Action, list[Action]] = defaultdict(list)
        self._reasons: dict[Action, tuple[Action, ...]] = {}
        self._serves: dict[Action, list[Action]] = defaultdict(list)
        self._all = list(actions)
        self._of: dict[str, list[ClusterAction]] = defaultdict(list)
        for action in self._all:
            if isinstance(action, ClusterAction):
                self._of[seat(action)].append(action)
        for account, steps in self._of.items():
            self._tie_removals(steps)
            if account in ordered:
                self._tie_all([step for step in steps if not isinstance(step, AddMember)])
        self._tie_last_homes()
        self._tie_needs()

    def spread(
        self, marked: Mapping[Action, Mark], *, beside: Set[Action] = frozenset()
    ) -> dict[Action, Mark]:
        """The marked actions and all that go along with them, with the mark that reached each first.

        `beside`: actions that do not happen for other reasons; they get no mark of these.
        """
        found = dict(marked)
        left: dict[Action, int] = {}
        queue = deque(found)
        while queue:
            action = queue.popleft()
            for other in (*self._along.get(action, ()), *self._without_purpose(action, left, beside)):
                if other not in found and other not in beside:
                    found[other] = found[action]
                    queue.append(other)
        return found

    def _without_purpose(
        self, action: Action, left: dict[Action, int], beside: Set[Action]
    ) -> Iterator[Action]:
        """What served this action and others, and serves nothing that happens any more. `left`: how many it serves."""
        for helper in self._serves.get(action, ()):
            if helper not in left:
                left[helper] = sum(reason not in beside for reason in self._reasons[helper])
            left[helper] -= 1
            if left[helper] == 0:
                yield helper

    def _tie(self, one: Action, other: Action) -> None:
        self._along[one].append(other)

    def _tie_all(self, actions: Sequence[Action]) -> None:
        """In a ring: any of them takes along all."""
        for one, other in zip(actions, (*actions[1:], *actions[:1]), strict=True):
            if one != other:
                self._tie(one, other)

    def _tie_removals(self, steps: Sequence[ClusterAction]) -> None:
        leaving = {step.user: step for step in steps if isinstance(step, RemoveMember)}
        moves = [s for s in steps if isinstance(s, MoveDefaultAccount) and s.user in leaving]
        if any(isinstance(step, DeleteAccount) for step in steps):
            self._tie_all([*(step for step in steps if isinstance(step, ENDING_STEPS)), *moves])
            return
        own = [s for s in steps if isinstance(s, CancelJobs | BlockMember) and s.user in leaving]
        companions: list[MoveDefaultAccount | CancelJobs | BlockMember] = [*moves, *own]
        for companion in companions:
            self._tie_all([leaving[companion.user], companion])
        stops: list[Action] = [s for s in steps if isinstance(s, CancelJobs) and not s.user]
        if stops and leaving:
            stops += [s for s in steps if isinstance(s, BlockSubmission)]
            self._tie_all(stops)
            for removal in leaving.values():
                self._tie(stops[0], removal)
                self._serves[removal] += stops
            self._reasons.update(dict.fromkeys(stops, tuple(leaving.values())))

    def _tie_last_homes(self) -> None:
        """Who leaves a default account for good leaves every other account with it, or keeps it too."""
        moved = {(a.before, a.user) for a in self._all if isinstance(a, MoveDefaultAccount)}
        leaving: dict[str, list[RemoveMember]] = defaultdict(list)
        for action in self._all:
            if isinstance(action, RemoveMember):
                leaving[action.user].append(action)
        for user, removals in leaving.items():
            home = self._snapshot.default_accounts.get(user)
            for last in removals:
                if last.account == home and (home, user) not in moved:
                    for other in removals:
                        if other != last:
                            self._tie(other, last)

    def _tie_needs(self) -> None:
        """Actions to what they cannot do without: an account to be in or below, a QoS, accounts that are gone."""
        first = self._first_steps()
        for action in self._all:
            for need in _needs(action):
                for step in first.get(need, ()):
                    if step != action:
                        self._tie(step, action)
            if isinstance(action, DeleteAccount):
                for step in self._departures(action.account):
                    self._tie(step, action)

    def _first_steps(self) -> Mapping[tuple[str, ...], Sequence[Action]]:
        """What brings the things that do not stand yet: accounts, QoS, members."""
        found: dict[tuple[str, ...], list[Action]] = defaultdict(list)
        for action in self._all:
            match action:
                case CreateAccount() if action.account not in self._snapshot.accounts:
                    found["account", action.account].append(action)
                case CreateQos():
                    found["QoS", action.account].append(action)
                case AddMember() if action.user not in self._snapshot.users_of(action.account):
                    found["member", action.account, action.user].append(action)
        return found

    def _departures(self, parent: str) -> Iterator[Action]:
        """How the accounts below this one go away."""
        for child in self._snapshot.children_of(parent):
            for step in self._of.get(child, ()):
                if isinstance(step, DeleteAccount) or (
                    isinstance(step, MoveAccount) and step.after != parent
                ):
                    yield step


def _needs(action: Action) -> tuple[tuple[str, ...], ...]:
    """What must stand before an action can happen, as `Bonds._first_steps` names it."""
    match action:
        case CreateAccount():
            return (("account", action.parent),)
        case MoveAccount():
            return ("account", action.account), ("account", action.after)
        case AddMember():
            return ("account", action.account), ("account", action.default_account)
        case SetQos():
            return ("account", action.account), ("QoS", action.account)
        case MoveDefaultAccount():
            return ("account", action.account), ("member", action.account, action.user)
        case ClusterAction() | ClaimAccount():
            return (("account", action.account),)
    return ()
