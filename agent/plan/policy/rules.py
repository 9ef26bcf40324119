# SPDX-License-Identifier: MIT
"""Whether one action is allowed at all, whoever approves: mode, ownership, protection, and what was read.

Waldur's side is told in every mode but `observe`: the modes guard the cluster, the directory and the head node. Which
actions fall with a refused one is decided in `dependencies`.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from agent.core.account_names import fold
from agent.core.actions import Action, ClusterAction, Effect, Kind
from agent.core.model import Part, Snapshot
from agent.core.policy import Charge, Cost, PolicyMode, PolicyRules

# What an order that makes an account may do to it.
SET_UP = frozenset({Cost.LIMITS_CUT, Cost.ACCOUNTS_BLOCKED})


class Why(StrEnum):
    """Why an action is refused."""

    PAUSED = "paused"
    MODE = "mode"
    OWNERSHIP = "ownership"
    PROTECTED = "protected"
    IGNORED = "ignored"
    INCOMPLETE = "incomplete"
    UNRECORDED = "unrecorded"


@dataclass(frozen=True, slots=True)
class Violation:
    """What a rule has against an action, with a sentence for people."""

    why: Why
    sentence: str


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What a pass knows beside the cluster's state.

    `named`: accounts that Waldur names. `making` and `ending`: accounts that orders of this pass make and end.
    `deliberate`: accounts whose members somebody takes away on purpose (`restrict_member_access`).
    `has_gaps`: something could not be planned, so that a plan which is not made again is not known to be gone.
    `sees_nothing`: Waldur listed nothing at all, which may be a mistake of its own.
    `needs_approval`: why all of this plan but what only tells Waldur waits for a person. `unrecorded`: why costs to
    people cannot be written down now, so that nothing that has any may happen. `system_users`: users of the system on
    this host, of those whom the plan adds to something.
    """

    named: frozenset[str] = frozenset()
    making: frozenset[str] = frozenset()
    ending: frozenset[str] = frozenset()
    deliberate: frozenset[str] = frozenset()
    has_gaps: bool = False
    sees_nothing: bool = False
    needs_approval: str = ""
    unrecorded: str = ""
    system_users: frozenset[str] = frozenset()

    @property
    def ordered(self) -> frozenset[str]:
        return self.making | self.ending


@dataclass(frozen=True, slots=True)
class RuleBook:
    """The rules of one plan, with what stands, and the accounts that the plan makes itself."""

    snapshot: Snapshot
    rules: PolicyRules
    context: PolicyContext
    made: Set[str]

    def violation(self, action: Action) -> Violation | None:
        """Return why this action must not happen; None when it may."""
        rules = self.rules
        if rules.paused:
            return Violation(Why.PAUSED, f"the offering is paused {rules.paused_why}")
        if rules.mode is PolicyMode.OBSERVE:
            return Violation(Why.MODE, "mode observe: nothing is changed")
        if action.effect is Effect.TELL:
            return None
        return (
            self._of_account(action)
            or self._of_user(action)
            or self._unread(action)
            or self._by_mode(action)
            or self._unrecorded(action)
        )

    def spares(self, user: str) -> bool:
        """Return whether no pass changes this user."""
        return self.rules.spares(user)

    def charges(self, action: Action) -> tuple[Charge, ...]:
        """Return what an action costs people. How an order sets up its account costs nobody anything."""
        found = action.charges(self.snapshot, self.rules)
        if action.for_account in self.context.making:
            return tuple(charge for charge in found if charge.cost not in SET_UP)
        return found

    def _of_account(self, action: Action) -> Violation | None:
        account = action.changed_account
        name = fold(account)
        if not account:
            return None
        if _matches(name, self.rules.ignore_accounts):
            return Violation(Why.IGNORED, f"account {account} matches ignore_accounts")
        if name in self.rules.protected_accounts:
            return Violation(Why.PROTECTED, f"account {account} is protected")
        is_made = name in self.made and name not in self.snapshot.accounts
        has_prefix = any(prefix and name.startswith(fold(prefix)) for prefix in self.rules.prefixes)
        # Whose group one is, the directory says itself.
        if not isinstance(action, ClusterAction) or is_made or has_prefix or name in self.context.named:
            return None
        return Violation(
            Why.OWNERSHIP, f"account {account} carries none of our prefixes and Waldur names it nowhere"
        )

    def _of_user(self, action: Action) -> Violation | None:
        """Return why a user must not be touched. An account that an order ends goes with everybody in it."""
        user = action.ids().get("user", "")
        if not user or action.for_account in self.context.ending:
            return None
        if fold(user) in self.rules.protected_users:
            return Violation(Why.PROTECTED, f"user {user} is protected")
        if action.effect is Effect.ADD and fold(user) in self.context.system_users:
            words = f"user {user} is one of the system on this host, by its uid: it joins nothing"
            return Violation(Why.PROTECTED, words)
        if _matches(fold(user), self.rules.ignore_users):
            return Violation(Why.IGNORED, f"user {user} matches ignore_users")
        return None

    def _unread(self, action: Action) -> Violation | None:
        needed = action.parts
        for kind, account, user in action.things(action.ends):
            if kind is Kind.MEMBER and self.snapshot.accounts_of(user) - {account}:
                needed |= {Part.DEFAULT_ACCOUNTS}
        if self.rules.mode is PolicyMode.CREATE_ONLY and isinstance(action, ClusterAction):
            needed |= {Part.ACCOUNTS}
        unread = sorted(part.value for part in needed - self.snapshot.complete)
        if not unread:
            return None
        return Violation(
            Why.INCOMPLETE, f"{', '.join(unread)} could not be read whole: nothing is taken away now"
        )

    def _by_mode(self, action: Action) -> Violation | None:
        mode = self.rules.mode
        if mode is PolicyMode.SYNC:
            return None
        # In an account that is being made a limit is set, and not lowered.
        is_first = bool(action.lowered(self.snapshot)) and action.for_account in self.context.making
        if not is_first and action.takes_away(self.snapshot, self.rules):
            return Violation(Why.MODE, f"mode {mode}: nothing is taken away, blocked or lowered")
        if (
            mode is PolicyMode.CREATE_ONLY
            and isinstance(action, ClusterAction)
            and action.for_account in self.snapshot.accounts.keys() - self.context.making
        ):
            return Violation(Why.MODE, f"mode {mode}: account {action.for_account} exists already")
        return None

    def _unrecorded(self, action: Action) -> Violation | None:
        why = self.context.unrecorded
        return Violation(Why.UNRECORDED, why) if why and self.charges(action) else None


def made_by(actions: Iterable[Action]) -> frozenset[str]:
    """Return the accounts that a plan makes."""
    return frozenset(
        fold(thing.account)
        for action in actions
        for thing in action.things(action.makes)
        if thing.kind is Kind.ACCOUNT
    )


def _matches(name: str, patterns: Set[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
