# SPDX-License-Identifier: MIT
"""What periodic usage policies change on the cluster, one verb each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.core.actions import (
    ACCOUNT_ID,
    NO_PARTS,
    ClusterAction,
    Effect,
    LimitsAction,
    Phase,
    Target,
    lowered_limits,
)
from agent.core.model import Snapshot
from agent.core.periodic import LimitType
from agent.core.policy import Cost, PolicyRules


@dataclass(frozen=True, kw_only=True)
class SetFairshare(ClusterAction):
    """Set an account's share among its siblings, by a periodic usage policy."""

    subject = "of {account} {before:parent} -> {after}"
    effect, target, phase = Effect.CHANGE, Target.ACCOUNT, Phase.SET
    parts, identifiers = NO_PARTS, ACCOUNT_ID
    costs = frozenset({Cost.SHARES_LOWERED})
    account: str
    before: int | None = field(default=None, compare=False)
    after: int

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return self.before is not None and self.after < self.before

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """Return whether the share may be a smaller one than before: `parent` compares with no number."""
        return self.before is None or self.after < self.before


@dataclass(frozen=True, kw_only=True)
class SetPeriodicLimits(LimitsAction):
    """Set limits of one type by a periodic usage policy; TRES that are not named keep theirs."""

    subject = "of {account} {limit_type} {change}"
    target, phase = Target.ACCOUNT, Phase.SET
    parts, identifiers = NO_PARTS, ACCOUNT_ID
    account: str
    limit_type: str
    before: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    after: tuple[tuple[str, int], ...]

    def lowered(self, snapshot: Snapshot) -> Mapping[str, tuple[int | None, int]]:
        """Return what falls. `before` was read with the account; the snapshot may have other limits of it only."""
        return lowered_limits(dict(self.before), self.after)

    def used_limits(self, snapshot: Snapshot) -> Mapping[str, tuple[int | None, int]]:
        return self.lowered(snapshot) if self.limit_type == LimitType.GRP_TRES_MINS else {}


@dataclass(frozen=True, kw_only=True)
class ResetRawUsage(ClusterAction):
    """Forget what an account has used so far (RawUsage=0), once in a policy's period."""

    subject = "of {account}{earlier}"
    effect, target, phase = Effect.CHANGE, Target.ACCOUNT, Phase.CLEAR
    parts, identifiers = NO_PARTS, ACCOUNT_ID
    costs = frozenset({Cost.USAGE_RESET})
    account: str
    # The period in which the agent did so last for the same policy, empty where it did not.
    before: str = field(default="", compare=False)

    @property
    def earlier(self) -> str:
        return f" (last in {self.before})" if self.before else ""

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        """Return whether it is no reset that is due: a policy that has reset the account in an earlier period does so
        in the next one, as it does for all its accounts then.
        """
        return not self.before
