# SPDX-License-Identifier: MIT
"""Periodic limits: what Waldur's policy asks of an account, what the account has, and what is to be changed. Pure.

A message is the only place where the figures are, so it is read strictly: what is not as Waldur writes it raises
PlanRefused with a sentence for the policy's log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar

from agent.core.actions import (
    ACCOUNT_ID,
    FREE,
    NO_PARTS,
    ClusterAction,
    Effect,
    Phase,
    Target,
    changed,
    lowered_limits,
)
from agent.core.errors import PlanRefused
from agent.core.model import Snapshot
from agent.core.policy import Cost, PolicyRules

ACTION = "apply_periodic_settings"
# SLURM 22.05 takes up to 2^31-2; the next number means `parent`.
FAIRSHARE_AT_MOST = 2**31 - 2
LIMIT_AT_MOST = 2**62
TRES_AT_MOST = 64
# A clock without a zone may be 14 hours ahead of ours.
AHEAD_AT_MOST = timedelta(days=1)
# Waldur's local time goes back by an hour at the end of summer time, and may be told by several of its hosts.
BACK_AT_MOST = timedelta(hours=2)
# As Python takes "1_0" and digits of all scripts, and SLURM does not.
NUMBER = re.compile(r"[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?")


class LimitType(StrEnum):
    """What a limit counts, in SLURM's spelling: minutes of all jobs, minutes of each job, or what is held at once."""

    GRP_TRES_MINS = "GrpTRESMins"
    MAX_TRES_MINS = "MaxTRESMins"
    GRP_TRES = "GrpTRES"


KEYS = {
    "grp_tres_mins": LimitType.GRP_TRES_MINS,
    "max_tres_mins": LimitType.MAX_TRES_MINS,
    "grp_tres": LimitType.GRP_TRES,
}


class Granularity(StrEnum):
    """How long a policy's period is."""

    TOTAL = "total"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


# As Waldur numbers them in `period`.
GRANULARITIES = {1: Granularity.TOTAL, 2: Granularity.MONTH, 3: Granularity.QUARTER, 4: Granularity.YEAR}


@dataclass(frozen=True, slots=True)
class PeriodicWish:
    """`fairshare` None: as it is. `limits` by TRES as the message names them, in SLURM's units."""

    account: str
    fairshare: int | None = None
    limits: Mapping[LimitType, Mapping[str, int]] = field(default_factory=dict)
    resets_usage: bool = False


@dataclass(frozen=True, slots=True)
class PeriodicState:
    """What an account has of its own. `fairshare` None: the account above's."""

    fairshare: int | None
    limits: Mapping[LimitType, Mapping[str, int]]


@dataclass(frozen=True, kw_only=True)
class SetFairshare(ClusterAction):
    """Set an account's share among its siblings, by a periodic usage policy."""

    verb: ClassVar[str] = "set fairshare"
    effect, target, phase = Effect.CHANGE, Target.ACCOUNT, Phase.SET
    parts, costs, identifiers = NO_PARTS, FREE, ACCOUNT_ID
    account: str
    before: int | None = field(default=None, compare=False)
    after: int

    def subject(self) -> str:
        return f"of {self.account} {self.before if self.before is not None else 'parent'} -> {self.after}"

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return self.before is not None and self.after < self.before


@dataclass(frozen=True, kw_only=True)
class SetPeriodicLimits(ClusterAction):
    """Set limits of one type by a periodic usage policy; TRES that are not named keep theirs."""

    verb: ClassVar[str] = "set periodic limits"
    effect, target, phase = Effect.CHANGE, Target.ACCOUNT, Phase.SET
    parts, identifiers = NO_PARTS, ACCOUNT_ID
    costs = frozenset({Cost.LIMITS_CUT})
    account: str
    limit_type: str
    before: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    after: tuple[tuple[str, int], ...]

    def subject(self) -> str:
        return f"of {self.account} {self.limit_type} {changed(self.before, self.after)}"

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return bool(self.lowered(snapshot))

    def lowered(self, snapshot: Snapshot) -> Mapping[str, tuple[int | None, int]]:
        """`before` was read with the account itself, of which the snapshot may show other limits only."""
        return lowered_limits(dict(self.before), self.after)

    def used_limits(self, snapshot: Snapshot) -> Mapping[str, tuple[int | None, int]]:
        return self.lowered(snapshot) if self.limit_type == LimitType.GRP_TRES_MINS else {}


@dataclass(frozen=True, kw_only=True)
class ResetRawUsage(ClusterAction):
    """Forget what an account has used so far (RawUsage=0), once in a policy's period."""

    verb: ClassVar[str] = "reset raw usage"
    effect, target, phase = Effect.CHANGE, Target.ACCOUNT, Phase.CLEAR
    parts, costs, identifiers = NO_PARTS, FREE, ACCOUNT_ID
    account: str

    def subject(self) -> str:
        return f"of {self.account}"


def wish(document: Mapping[str, Any]) -> PeriodicWish:
    """What the message asks for. Raises PlanRefused."""
    if document.get("action") != ACTION:
        raise PlanRefused(f"its action is {_shown(document.get('action'))}, and {ACTION} is known only")
    account = document.get("backend_id")
    if not isinstance(account, str) or not account.strip():
        raise PlanRefused("it has no backend_id")
    settings = document.get("settings")
    if not isinstance(settings, Mapping):
        raise PlanRefused("its settings are no object")
    resets = settings.get("reset_raw_usage", False)
    if not isinstance(resets, bool):
        raise PlanRefused(f"its reset_raw_usage is {_shown(resets)}, not true or false")
    return PeriodicWish(account.strip(), _fairshare(settings), _limits(settings), resets)


def moment(document: Mapping[str, Any], now: datetime) -> datetime:
    """When Waldur wrote the message: without a zone, as Waldur does. `now`, in UTC without a zone, where it does not
    say. Raises PlanRefused; a time to come as well, behind which everything that follows would be old.
    """
    text = document.get("timestamp")
    if text is None:
        return now
    try:
        found = datetime.fromisoformat(str(text))
        found = found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found
    except (ValueError, OverflowError) as error:
        raise PlanRefused(f"its timestamp is {_shown(text)}, which is no date and time") from error
    if is_to_come(found, now):
        raise PlanRefused(
            f"its timestamp is {_shown(text)}, which is to come: a clock is wrong, Waldur's or the one here ({now} UTC)"
        )
    return found


def is_to_come(at: datetime, now: datetime) -> bool:
    return at - now > AHEAD_AT_MOST


def is_old(at: datetime, applied: datetime | None) -> bool:
    """Whether something newer was carried out already."""
    return applied is not None and applied - at > BACK_AT_MOST


def period(at: datetime, granularity: Granularity) -> str:
    """The name of the policy's period that a moment belongs to: `2026-01`, `2026-Q1`, `2026`, `total`."""
    return {
        Granularity.TOTAL: "total",
        Granularity.MONTH: f"{at:%Y-%m}",
        Granularity.QUARTER: f"{at.year}-Q{(at.month + 2) // 3}",
        Granularity.YEAR: f"{at.year}",
    }[granularity]


def actions(
    asked: PeriodicWish, state: PeriodicState, *, reason: str, resets_usage: bool
) -> list[ClusterAction]:
    """What has to be done. `resets_usage`: whether this period's reset is still to come."""
    found: list[ClusterAction] = []
    if asked.fairshare is not None and asked.fairshare != state.fairshare:
        found.append(
            SetFairshare(account=asked.account, before=state.fairshare, after=asked.fairshare, reason=reason)
        )
    for limit_type, limits in asked.limits.items():
        has = state.limits.get(limit_type, {})
        other = sorted((tres, value) for tres, value in limits.items() if has.get(tres) != value)
        if other:
            before = tuple((tres, has[tres]) for tres, _ in other if tres in has)
            found.append(
                SetPeriodicLimits(
                    account=asked.account,
                    limit_type=limit_type,
                    before=before,
                    after=tuple(other),
                    reason=reason,
                )
            )
    if asked.resets_usage and resets_usage:
        found.append(ResetRawUsage(account=asked.account, reason=reason))
    return found


def _fairshare(settings: Mapping[str, Any]) -> int | None:
    """None where there is none, or 0: no share at all would stop the account for good."""
    value = settings.get("fairshare")
    if value is None:
        return None
    return _number("fairshare", value, FAIRSHARE_AT_MOST) or None


def _limits(settings: Mapping[str, Any]) -> dict[LimitType, dict[str, int]]:
    named = settings.get("limit_type")
    found: dict[LimitType, dict[str, int]] = {}
    for key, limit_type in KEYS.items():
        values = settings.get(key)
        if not values:
            continue
        if named not in (None, limit_type):
            raise PlanRefused(f"its limit_type is {_shown(named)}, and its limits are {key}")
        found[limit_type] = _by_tres(key, values)
    return found


def _by_tres(key: str, values: Any) -> dict[str, int]:
    if not isinstance(values, Mapping) or not all(isinstance(tres, str) and tres for tres in values):
        raise PlanRefused(f"its {key} are no object of numbers by TRES")
    if len(values) > TRES_AT_MOST:
        raise PlanRefused(f"its {key} name {len(values)} TRES; more than {TRES_AT_MOST} cannot be right")
    twice = [tres for tres, times in Counter(map(str.lower, values)).items() if times > 1]
    if twice:
        raise PlanRefused(f"its {key} name {_shown(twice[0])} twice, in capitals and without")
    return {tres: _number(f"{key} {tres}", value, LIMIT_AT_MOST) for tres, value in values.items()}


def _number(what: str, value: Any, at_most: int) -> int:
    """A whole number, as JSON number or text: newer servers write decimals."""
    try:
        number = _decimal(value)
        if not 0 <= number <= at_most or number != int(number):
            raise ValueError
    except (ValueError, ArithmeticError) as error:
        raise PlanRefused(
            f"its {what} is {_shown(value)}: a whole number from 0 to {at_most} is needed"
        ) from error
    return int(number)


def _decimal(value: Any) -> Decimal:
    """Raises ValueError."""
    if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
        return Decimal(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    return Decimal(value)


def _shown(value: Any) -> str:
    return repr(value)[:60]


def named_in(asked: PeriodicWish) -> Iterable[str]:
    """The TRES that the message names."""
    return {tres for limits in asked.limits.values() for tres in limits}
