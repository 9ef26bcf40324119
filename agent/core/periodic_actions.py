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
from agent.core.model import Part, Snapshot
from agent.core.periodic import LimitType
from agent.core.policy import Charge, Cost, PolicyRules


def _once(found: tuple[Charge, ...], opening: str) -> tuple[Charge, ...]:
    """Return costs as one of the policy where it opens a period, for all its accounts together."""
    return tuple(Charge(charge.cost, opening) for charge in found) if opening else found


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
    # Such as `policy UUID, 2026-01`, where the policy opens a period with it.
    opening: str = field(default="", compare=False)

    def charges(self, snapshot: Snapshot, rules: PolicyRules) -> tuple[Charge, ...]:
        return _once(super().charges(snapshot, rules), self.opening)

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
    # As of `SetFairshare`.
    opening: str = field(default="", compare=False)

    def charges(self, snapshot: Snapshot, rules: PolicyRules) -> tuple[Charge, ...]:
        """Return what it costs: a cut below what is used, or of which that is unknown, is always the account's."""
        used = snapshot.used.get(self.account, {}) if Part.USAGE in snapshot.complete else {}
        is_cut = any(
            used.get(tres, then + 1) > then for tres, (_, then) in self.used_limits(snapshot).items()
        )
        return _once(super().charges(snapshot, rules), "" if is_cut else self.opening)

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
