# SPDX-License-Identifier: MIT
"""Periodic settings: what is to be changed on an account, and whether a policy's message still counts.

wanted       has           action
fairshare    another one   SetFairshare
limit        other value   SetPeriodicLimits, one for each type, for the TRES that differ
a reset      not yet done  ResetRawUsage, last
"""

from __future__ import annotations

from datetime import datetime, timedelta

from agent.core.actions import ClusterAction
from agent.core.periodic import DesiredSettings, Granularity, ObservedSettings
from agent.core.periodic_actions import ResetRawUsage, SetFairshare, SetPeriodicLimits

# Waldur's local time goes back by an hour at the end of summer time, and may be reported by several of its hosts.
BACK_AT_MOST = timedelta(hours=2)


def changes(
    desired: DesiredSettings,
    observed: ObservedSettings,
    *,
    reason: str,
    resets_usage: bool,
    last_reset: str = "",
    opening: str = "",
) -> list[ClusterAction]:
    """Return what has to be done. `resets_usage`: whether this period's reset is still to come; `last_reset`: the
    period before it in which the policy had one; `opening`: the policy and the period that it opens with this, if any.
    """
    found: list[ClusterAction] = []
    if desired.fairshare is not None and desired.fairshare != observed.fairshare:
        found.append(
            SetFairshare(
                account=desired.account,
                before=observed.fairshare,
                after=desired.fairshare,
                opening=opening,
                reason=reason,
            )
        )
    for limit_type, limits in desired.limits.items():
        has = observed.limits.get(limit_type, {})
        other = sorted((tres, value) for tres, value in limits.items() if has.get(tres) != value)
        if other:
            before = tuple((tres, has[tres]) for tres, _ in other if tres in has)
            found.append(
                SetPeriodicLimits(
                    account=desired.account,
                    limit_type=limit_type,
                    before=before,
                    after=tuple(other),
                    opening=opening,
                    reason=reason,
                )
            )
    if desired.resets_usage and resets_usage:
        found.append(ResetRawUsage(account=desired.account, before=last_reset, reason=reason))
    return found


def is_old(at: datetime, applied: datetime | None) -> bool:
    """Return whether something newer was carried out already. Both moments in UTC without a zone."""
    return applied is not None and applied - at > BACK_AT_MOST


def is_later(period: str, before: str) -> bool:
    """Return whether a period comes after another one of the same length."""
    is_alike = len(period) == len(before) and ("Q" in period) == ("Q" in before)
    return is_alike and before < period


def opens(desired: DesiredSettings, at: datetime, applied: datetime | None, granularity: Granularity) -> str:
    """Return the period that a message opens: the one that it was written in, where it says so (it forgets what was
    used, or names the period before) and what was carried out last was of an earlier one. Empty where it opens none.
    """
    present = period(at, granularity)
    if granularity is Granularity.TOTAL or applied is None:
        return ""
    first = at.replace(day=1)
    if granularity is Granularity.QUARTER:
        first = first.replace(month=(at.month - 1) // 3 * 3 + 1)
    elif granularity is Granularity.YEAR:
        first = first.replace(month=1)
    before = period(first - timedelta(days=1), granularity)
    is_announced = desired.resets_usage or desired.previous_period == before
    return present if is_announced and is_later(present, period(applied, granularity)) else ""


def period(at: datetime, granularity: Granularity) -> str:
    """Return the name of the policy's period that a moment belongs to: `2026-01`, `2026-Q1`, `2026`, `total`."""
    return {
        Granularity.TOTAL: "total",
        Granularity.MONTH: f"{at:%Y-%m}",
        Granularity.QUARTER: f"{at.year}-Q{(at.month + 2) // 3}",
        Granularity.YEAR: f"{at.year}",
    }[granularity]
