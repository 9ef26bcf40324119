# SPDX-License-Identifier: MIT
"""Whether one action is allowed at all, whoever approves: mode, ownership, protection, and what was read.

Waldur's side is told in every mode but `observe`: the modes guard the cluster. Which actions fall with a
refused one is decided in `bonds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from agent.core.actions import (
    Action,
    BlockMember,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
    DeleteQos,
    MoveAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
    SetUserLimits,
)
from agent.core.model import Part, Snapshot
from agent.core.names import fold
from agent.core.policy import PolicyMode, PolicyRules
from agent.plan.policy.dependencies import seat

TAKING_AWAY = (RemoveMember, DeleteAccount, DeleteQos, BlockMember, BlockSubmission, CancelJobs)
# What must have been read whole before an action may happen; nothing is taken away on half a picture.
PARTS_NEEDED: Mapping[type[Action], frozenset[Part]] = {
    RemoveMember: frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}),
    DeleteAccount: frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}),
    DeleteQos: frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.QOS}),
    BlockMember: frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}),
    CancelJobs: frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}),
    MoveAccount: frozenset({Part.ACCOUNTS}),
    MoveDefaultAccount: frozenset({Part.DEFAULT_ACCOUNTS}),
    SetLimits: frozenset({Part.ACCOUNTS}),
    SetUserLimits: frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}),
}


class Why(StrEnum):
    """Why an action is refused."""

    PAUSED = "paused"
    MODE = "mode"
    OWNERSHIP = "ownership"
    PROTECTED = "protected"
    IGNORED = "ignored"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class Grounds:
    """What a pass knows beside the cluster's state.

    `named`: accounts that Waldur names. `making` and `ending`: accounts that orders of this pass make and end.
    `has_gaps`: something could not be planned, so that a plan which is not made again is not known to be gone.
    """

    named: frozenset[str] = frozenset()
    making: frozenset[str] = frozenset()
    ending: frozenset[str] = frozenset()
    has_gaps: bool = False


@dataclass(frozen=True, slots=True)
class Judge:
    """One pass: its rules, what stands, and the accounts that it makes itself."""

    snapshot: Snapshot
    rules: PolicyRules
    grounds: Grounds
    made: Set[str]

    def objection(self, action: Action) -> tuple[Why, str] | None:
        """Why this action must not happen, with a sentence for people; None when it may."""
        rules = self.rules
        if rules.paused:
            return Why.PAUSED, f"the offering is paused {rules.paused_why}"
        if rules.mode is PolicyMode.OBSERVE:
            return Why.MODE, "mode observe: nothing is changed"
        if not isinstance(action, ClusterAction):
            return None
        return (
            self._of_account(action) or self._of_user(action) or self._unread(action) or self._by_mode(action)
        )

    def spares(self, user: str) -> bool:
        """Users whom no pass changes."""
        name = fold(user)
        return name in self.rules.protected_users or _matches(name, self.rules.ignore_users)

    def lowered(self, action: Action) -> dict[str, tuple[int | None, int]]:
        """TRES whose limit the action lowers, with the limit now (None: unlimited) and then."""
        if not isinstance(action, SetLimits | SetUserLimits) or self._is_new(action.account):
            return {}
        if isinstance(action, SetUserLimits):
            now = self.snapshot.user_limits.get((action.account, action.user), {})
        else:
            standing = self.snapshot.accounts.get(action.account)
            now = standing.limits if standing else dict(action.before)
        found = {}
        for tres, value in action.after:
            limit = now.get(tres)
            limit = None if limit is not None and limit < 0 else limit
            if value >= 0 and (limit is None or value < limit):
                found[tres] = (limit, value)
        return found

    def _of_account(self, action: ClusterAction) -> tuple[Why, str] | None:
        if isinstance(action, MoveDefaultAccount) and not action.before:
            return None
        account = seat(action)
        name = fold(account)
        if _matches(name, self.rules.ignore_accounts):
            return Why.IGNORED, f"account {account} matches ignore_accounts"
        if name in self.rules.protected_accounts:
            return Why.PROTECTED, f"account {account} is protected"
        if self._is_ours(name):
            return None
        return Why.OWNERSHIP, f"account {account} carries none of our prefixes and Waldur names it nowhere"

    def _is_ours(self, name: str) -> bool:
        if name in self.made and name not in self.snapshot.accounts:
            return True
        return name in self.grounds.named or any(
            prefix and name.startswith(fold(prefix)) for prefix in self.rules.prefixes
        )

    def _of_user(self, action: ClusterAction) -> tuple[Why, str] | None:
        """An account that an order ends goes with everybody's association in it."""
        user = getattr(action, "user", "")
        if not user or seat(action) in self.grounds.ending:
            return None
        if fold(user) in self.rules.protected_users:
            return Why.PROTECTED, f"user {user} is protected"
        if _matches(fold(user), self.rules.ignore_users):
            return Why.IGNORED, f"user {user} matches ignore_users"
        return None

    def _unread(self, action: ClusterAction) -> tuple[Why, str] | None:
        needed = PARTS_NEEDED.get(type(action), frozenset())
        if isinstance(action, RemoveMember) and self.snapshot.accounts_of(action.user) - {action.account}:
            needed |= {Part.DEFAULT_ACCOUNTS}
        if self.rules.mode is PolicyMode.CREATE_ONLY:
            needed |= {Part.ACCOUNTS}
        unread = sorted(part.value for part in needed - self.snapshot.complete)
        if not unread:
            return None
        return Why.INCOMPLETE, f"{', '.join(unread)} could not be read whole: nothing is taken away now"

    def _by_mode(self, action: ClusterAction) -> tuple[Why, str] | None:
        mode = self.rules.mode
        if mode is PolicyMode.SYNC:
            return None
        if isinstance(action, TAKING_AWAY) or self._stops_jobs(action) or self.lowered(action):
            return Why.MODE, f"mode {mode}: nothing is taken away, blocked or lowered"
        if mode is PolicyMode.CREATE_ONLY and not self._is_new(seat(action)):
            return Why.MODE, f"mode {mode}: account {seat(action)} exists already"
        return None

    def _is_new(self, account: str) -> bool:
        return account not in self.snapshot.accounts or account in self.grounds.making

    def _stops_jobs(self, action: ClusterAction) -> bool:
        return isinstance(action, SetQos) and fold(action.default) in self.rules.pausing_qos


def made_by(actions: Set[Action]) -> frozenset[str]:
    """Accounts that a plan makes."""
    return frozenset(fold(action.account) for action in actions if isinstance(action, CreateAccount))


def _matches(name: str, patterns: Set[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
