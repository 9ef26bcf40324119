# SPDX-License-Identifier: MIT
"""What a site allows a plan to do: the values that `agent.config` reads and `agent.plan.policy` judges by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from agent.core.account_names import fold
from agent.core.system_users import SYSTEM_USERS

# Letters of a held plan's id that people see and type; the whole of it is a SHA-256, which cannot be forged.
SHORT_ID = 12


class PolicyMode(StrEnum):
    """How far passes may go: all of it, nothing that takes away, new accounts only, or nothing at all."""

    SYNC = "sync"
    UPSERT_ONLY = "upsert-only"
    CREATE_ONLY = "create-only"
    OBSERVE = "observe"


class LimitCuts(StrEnum):
    """What becomes of a limit below what is used already: it would kill running jobs."""

    HOLD = "hold"
    ALLOW = "allow"


class JournalFailures(StrEnum):
    """What happens while the journal cannot be written: a full disk, a read-only folder."""

    GO_ON = "go_on"
    STOP = "stop"


class UsageDecreases(StrEnum):
    """What becomes of a usage figure below the one that Waldur has already, and which may have been billed."""

    HOLD = "hold"
    ALLOW = "allow"


class LimitsSource(StrEnum):
    """Whose limits count: those on the cluster are reported to Waldur, or Waldur's are set on the cluster."""

    CLUSTER = "cluster"
    WALDUR = "waldur"


class Cost(StrEnum):
    """What a change costs people; each has a budget for an hour and a day."""

    MEMBERS_REMOVED = "members_removed"
    ACCOUNTS_EMPTIED = "accounts_emptied"
    ACCOUNTS_BLOCKED = "accounts_blocked"
    ACCOUNTS_MOVED = "accounts_moved"
    LIMITS_CUT = "limits_cut"
    JOBS_CANCELLED = "jobs_cancelled"
    DEFAULTS_MOVED = "defaults_moved"
    GROUP_MEMBERS_REMOVED = "group_members_removed"
    QUOTAS_LOWERED = "quotas_lowered"
    PARTITIONS_REMOVED = "partitions_removed"
    ACCOUNTS_DOWNSCALED = "accounts_downscaled"
    MEMBERS_PAUSED = "members_paused"
    SHARES_LOWERED = "shares_lowered"
    USAGE_RESET = "usage_reset"
    KEYS_ENDED = "keys_ended"
    PEOPLE_RENAMED = "people_renamed"
    PEOPLE_MADE = "people_made"
    HOMES_MADE = "homes_made"


@dataclass(frozen=True, slots=True, order=True)
class Charge:
    """One cost to one account, group or user; the same one again within a window counts once."""

    cost: Cost
    # The account or group that it happens in, empty for a user as a whole.
    account: str
    # Empty for all of the account.
    user: str = ""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many charges of one cost a cluster may have within an hour and within a day without a person's approval."""

    hour: int
    day: int


# For a site of some 500 allocations with 6 members each: what people do by hand in an hour stays below, a mistake
# that reaches all of them does not. People and homes are made by hundreds when a site is taken into use or a course
# begins, which takes nothing from anybody: there a third of all people stays below.
BUDGETS: Mapping[Cost, Budget] = {
    Cost.MEMBERS_REMOVED: Budget(50, 150),
    Cost.ACCOUNTS_EMPTIED: Budget(10, 25),
    Cost.ACCOUNTS_BLOCKED: Budget(20, 60),
    Cost.ACCOUNTS_MOVED: Budget(20, 60),
    Cost.LIMITS_CUT: Budget(50, 150),
    Cost.JOBS_CANCELLED: Budget(50, 150),
    Cost.DEFAULTS_MOVED: Budget(50, 150),
    Cost.GROUP_MEMBERS_REMOVED: Budget(50, 150),
    Cost.QUOTAS_LOWERED: Budget(50, 150),
    Cost.PARTITIONS_REMOVED: Budget(50, 150),
    Cost.ACCOUNTS_DOWNSCALED: Budget(50, 150),
    Cost.MEMBERS_PAUSED: Budget(50, 150),
    Cost.SHARES_LOWERED: Budget(50, 150),
    Cost.USAGE_RESET: Budget(50, 150),
    Cost.KEYS_ENDED: Budget(50, 150),
    Cost.PEOPLE_RENAMED: Budget(5, 15),
    Cost.PEOPLE_MADE: Budget(1000, 3000),
    Cost.HOMES_MADE: Budget(1000, 3000),
}
# For the sentence of a held plan: how many accounts or users have the cost.
COST_SENTENCES: Mapping[Cost, str] = {
    Cost.ACCOUNTS_EMPTIED: "{} account{s} would be deleted or emptied",
    Cost.ACCOUNTS_BLOCKED: "{} account{s} would be blocked",
    Cost.ACCOUNTS_MOVED: "{} account{s} would be moved",
    Cost.LIMITS_CUT: "limits of {} account{s} or user{s} would be lowered",
    Cost.JOBS_CANCELLED: "jobs of {} account{s} or user{s} would be cancelled",
    Cost.DEFAULTS_MOVED: "the default account{s} of {} user{s} would be moved",
    Cost.GROUP_MEMBERS_REMOVED: "{} member{s} would be removed from groups",
    Cost.QUOTAS_LOWERED: "the quota{s} of {} user{s} or project{s} would be lowered",
    Cost.PARTITIONS_REMOVED: "{} member{s} would lose a partition",
    Cost.ACCOUNTS_DOWNSCALED: "{} account{s} would be downscaled",
    Cost.MEMBERS_PAUSED: "{} member{s} would get the QoS of paused or downscaled accounts",
    Cost.SHARES_LOWERED: "the share{s} of {} account{s} would be lowered",
    Cost.USAGE_RESET: "the counted usage of {} account{s} would be forgotten",
    Cost.KEYS_ENDED: "{} key{s} would be ended, paused or replaced",
    Cost.PEOPLE_RENAMED: "the username{s} of {} user{s} would change",
    Cost.PEOPLE_MADE: "{} new user{s} would be made",
    Cost.HOMES_MADE: "the home{s} of {} user{s} would be made",
}


@dataclass(frozen=True, slots=True)
class History:
    """The charges of one cluster that no person has approved, within the last hour and the last day."""

    hour: frozenset[Charge] = frozenset()
    day: frozenset[Charge] = frozenset()
    # Charges within the last day that a person has approved, while that approval is open; the same again (a retry)
    # costs nothing.
    approved: frozenset[Charge] = frozenset()
    # All charges of the last hour; what only goes with them (the group of an account that went) costs nothing.
    paid: frozenset[Charge] = frozenset()
    # By account who has joined it within the last day, and was not in before.
    joined: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def with_costs(self, charges: Iterable[Charge], approved: Iterable[Iterable[Charge]]) -> History:
        """Return the history after a plan that costs this, and of which a person has approved the rest."""
        spent, free = frozenset(charges), self.approved.union(*approved)
        return replace(
            self,
            hour=self.hour | spent,
            day=self.day | spent,
            approved=free,
            paid=self.paid | spent | free,
        )


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """The rules for the plans of one offering. Names are in lower case; `ignore_*` are patterns of fnmatch.

    A plan is held when one of its maxima is exceeded, or would be together with what happened before (`History`), or a
    budget would be overdrawn.
    """

    mode: PolicyMode = PolicyMode.SYNC
    paused: bool = False
    # Who paused, and since when.
    paused_why: str = "by `paused: true` in the configuration"
    # Removed at once, from one account or from the cluster.
    max_removed_members: int = BUDGETS[Cost.MEMBERS_REMOVED].hour
    # Of the members there are; it holds only what is more than a small removal, too.
    max_removed_percent: int = 50
    small_removal: int = 2
    # Deleted or emptied.
    max_removed_accounts: int = BUDGETS[Cost.ACCOUNTS_EMPTIED].hour
    budgets: Mapping[Cost, Budget] = field(default_factory=lambda: dict(BUDGETS))
    limit_cuts: LimitCuts = LimitCuts.HOLD
    usage_decreases: UsageDecreases = UsageDecreases.HOLD
    journal_failures: JournalFailures = JournalFailures.GO_ON
    protected_users: frozenset[str] = SYSTEM_USERS
    protected_accounts: frozenset[str] = frozenset({"root"})
    ignore_users: frozenset[str] = frozenset()
    ignore_accounts: frozenset[str] = frozenset()
    # They prove that an account is ours.
    prefixes: tuple[str, ...] = ()
    # A QoS of these stops jobs as blocking does.
    pausing_qos: frozenset[str] = frozenset()
    # One of these slows them.
    downscaling_qos: frozenset[str] = frozenset()

    def budget(self, cost: Cost) -> Budget:
        """Return the budget of one cost. The hour of the first two has a key of its own; a day is no less than that."""
        hour, day = self.budgets[cost].hour, self.budgets[cost].day
        own = {
            Cost.MEMBERS_REMOVED: self.max_removed_members,
            Cost.ACCOUNTS_EMPTIED: self.max_removed_accounts,
        }
        hour = own.get(cost, hour)
        return Budget(hour, max(hour, day))

    def spares(self, user: str) -> bool:
        """Return whether no pass touches this user: they are protected, or ignored."""
        name = fold(user)
        return name in self.protected_users or any(fnmatchcase(name, each) for each in self.ignore_users)
