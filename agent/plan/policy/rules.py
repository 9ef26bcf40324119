# SPDX-License-Identifier: MIT
"""Whether one action is allowed at all, whoever approves: mode, ownership, protection, and what was read.

Reports go to Waldur in every mode but `observe`: the modes guard the cluster, the directory and the head node. Which
actions fall with a refused one is decided in `dependencies`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property

from agent.core.account_names import fold
from agent.core.actions import TREE, Action, ClusterAction, Effect, ObjectKind, objects_ended, objects_made
from agent.core.model import Part, Snapshot
from agent.core.ownership import Ledger, Origin
from agent.core.policy import Charge, Cost, PolicyMode, PolicyRules

# What costs those who are in an account.
SET_UP = frozenset({Cost.LIMITS_CUT, Cost.ACCOUNTS_BLOCKED, Cost.ACCOUNTS_DOWNSCALED})

# What takes nothing from anyone.
GIVEN = frozenset({Cost.PEOPLE_MADE, Cost.HOMES_MADE})


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
    """What a pass knows besides the cluster's state."""

    # Accounts that Waldur names.
    named: frozenset[str] = frozenset()
    # Accounts that stand at the place and under the name that this agent gives them, and whether that name has
    # a prefix.
    derived: Mapping[str, bool] = field(default_factory=dict)
    # Accounts that orders of this pass make, and those that they end.
    making: frozenset[str] = frozenset()
    ending: frozenset[str] = frozenset()
    # Accounts whose members are taken away on purpose (`restrict_member_access`).
    deliberate: frozenset[str] = frozenset()
    # By account and new username, the old one of people who are in the account under that.
    renamed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    # Something could not be planned, so that a plan which is not made again is not known to be gone.
    has_gaps: bool = False
    # Waldur listed nothing at all, which may be its own mistake.
    waldur_is_empty: bool = False
    # Why all of this plan but reports to Waldur waits for a person.
    needs_approval: str = ""
    # Why costs to people cannot be written down now, so that nothing that has any may happen.
    unrecorded: str = ""
    # Users of the system on this host, of those whom the plan adds to something.
    system_users: frozenset[str] = frozenset()
    # Those of `named` that this pass leaves alone: an order is at work on them, or their team could not be read.
    unplanned: frozenset[str] = frozenset()

    @property
    def ordered(self) -> frozenset[str]:
        return self.making | self.ending


@dataclass(frozen=True)
class RuleBook:
    """The rules of one plan, with what stands, the accounts that the plan makes itself, and whose the others are."""

    snapshot: Snapshot
    rules: PolicyRules
    context: PolicyContext
    made: Set[str]
    ledger: Ledger

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
        """Return what an action costs people. How an account without members is set up costs nothing."""
        found = action.charges(self.snapshot, self.rules)
        if self.context.renamed:
            found = (*found, *self._renamings(action))
        if any(charge.cost in SET_UP for charge in found) and self.is_empty(action.for_account):
            return tuple(charge for charge in found if charge.cost not in SET_UP)
        return found

    def _renamings(self, action: Action) -> Iterator[Charge]:
        """Yield what it costs that a person gets another name: the new one joins, and the old one leaves."""
        for kind, account, user in (*action.objects(action.makes), *action.objects(action.ends)):
            if kind is ObjectKind.MEMBER:
                if before := self.context.renamed.get((account, user)):
                    yield Charge(Cost.PEOPLE_RENAMED, "", before)
                elif (account, user) in self._old_names:
                    yield Charge(Cost.PEOPLE_RENAMED, "", user)

    @cached_property
    def _old_names(self) -> Set[tuple[str, str]]:
        return {(account, before) for (account, _), before in self.context.renamed.items()}

    def is_empty(self, account: str) -> bool:
        """Return whether an account was seen with no member in it, and no account below."""
        return is_empty(self.snapshot, account)

    def is_being_made(self, account: str) -> bool:
        """Return whether an order of this pass makes an account that this host began to make."""
        return account in self.context.making and self.ledger.origins.get(account) is Origin.MADE

    def not_ours(self, action: Action) -> str:
        """Return the account that a person has to adopt before this action may happen; empty where it needs none.

        Where the tree was not read (a message on one account), a prefix stands for the place.
        """
        account = fold(action.changed_account)
        if not account or action.effect is Effect.TELL or self.ledger.is_ours(account):
            return ""
        if self.ledger.is_asked(account):
            return account
        if self.snapshot.complete >= TREE:
            is_foreign = account in self.snapshot.accounts
        else:
            is_foreign = not self._has_prefix(account)
        return account if is_foreign and account in self.context.named else ""

    def _has_prefix(self, account: str) -> bool:
        return any(prefix and account.startswith(fold(prefix)) for prefix in self.rules.prefixes)

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
        # Whose group one is, the directory says itself. What Waldur names and is not ours is held (`not_ours`).
        is_known = is_made or self._has_prefix(name) or name in self.context.named
        if not isinstance(action, ClusterAction) or is_known or self.ledger.is_ours(name):
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
        for _, account, user in objects_ended([action], ObjectKind.MEMBER):
            if self.snapshot.accounts_of(user) - {account}:
                needed |= {Part.DEFAULT_ACCOUNTS}
        if self.rules.mode is PolicyMode.CREATE_ONLY and isinstance(action, ClusterAction):
            needed |= {Part.ACCOUNTS}
        ends = action.objects((*action.awaits, *action.ends))
        if (why := self.snapshot.unread.get(Part.JOBS)) and any(
            thing.kind is ObjectKind.JOBS for thing in ends
        ):
            return Violation(
                Why.INCOMPLETE,
                f"which jobs still run is not known, so no member is removed and nothing ends now: {why}",
            )
        unread = sorted(part.value for part in needed - self.snapshot.complete)
        if not unread:
            return None
        return Violation(
            Why.INCOMPLETE, f"{', '.join(unread)} could not be read whole: nothing is taken away now"
        )

    def _by_mode(self, action: Action) -> Violation | None:
        mode, joins = self.rules.mode, action.effect is Effect.ADD
        if mode is PolicyMode.SYNC:
            return None
        # In an account that is being made a limit is set, and not lowered. It may stand, where a pass was cut off.
        is_begun = action.for_account in self.context.making and self.is_empty(action.for_account)
        if not (is_begun and action.lowered(self.snapshot)) and action.takes_away(self.snapshot, self.rules):
            return Violation(Why.MODE, f"mode {mode}: nothing is taken away, blocked or lowered")
        if (
            mode is PolicyMode.CREATE_ONLY
            and isinstance(action, ClusterAction)
            and action.for_account in self.snapshot.accounts
            and not (is_begun or (joins and action.for_account in self.context.making))
        ):
            return Violation(Why.MODE, f"mode {mode}: account {action.for_account} exists already")
        return None

    def _unrecorded(self, action: Action) -> Violation | None:
        why = self.context.unrecorded
        is_felt = why and any(charge.cost not in GIVEN for charge in self.charges(action))
        return Violation(Why.UNRECORDED, why) if is_felt else None


def is_empty(snapshot: Snapshot, account: str) -> bool:
    """Return whether an account was seen with no member in it, and no account below."""
    return snapshot.complete >= TREE and not (snapshot.users_of(account) or snapshot.children_of(account))


def made_by(actions: Iterable[Action]) -> frozenset[str]:
    """Return the accounts that a plan makes."""
    return frozenset(fold(thing.account) for thing in objects_made(actions, ObjectKind.ACCOUNT))


def _matches(name: str, patterns: Set[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
