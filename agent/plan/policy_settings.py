# SPDX-License-Identifier: MIT
"""What a periodic usage policy of Waldur would set on an account now, by Waldur's own rules (8.0): so that a diagnosis
can say what is missing. The agent sets what the policy's messages say, and never this.

unused of the period before   is carried over, up to a share (percent) of the limit
limits in hours               times 60, and by the grace ratio more
share                         a third of all hours
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from agent.core.errors import PlanRefused
from agent.core.periodic import Granularity, LimitType
from agent.core.periods import Month

MINUTES = 60
BILLING = "billing"
MONTHS = {Granularity.MONTH: 1, Granularity.QUARTER: 3, Granularity.YEAR: 12}


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The settings of one account, limits by the names that Waldur gives them: components, and `billing`."""

    limit_type: LimitType
    fairshare: int
    limits: Mapping[str, int]
    # How the limit of each component came about, in words.
    reasons: Mapping[str, str]


def months_before(at: datetime, granularity: Granularity) -> list[Month]:
    """Return the months of the period before the one of a moment; none of a period without an end."""
    count = MONTHS.get(granularity, 0)
    month = Month.of(at)
    for _ in range((month.month - 1) % count if count else 0):
        month = month.previous
    found: list[Month] = []
    for _ in range(count):
        month = month.previous
        found.append(month)
    return found


def of_policy(
    policy: Mapping[str, Any], limits: Mapping[str, Any], used: Mapping[str, Decimal] | None
) -> PolicySettings:
    """Return what a policy (its fields by API name) sets for a resource with these limits, in hours; `used`: in the
    period before, None where there is none. Raises PlanRefused for what is no number, an unknown type of limits, or
    weights that make nothing of them.
    """
    base = {name: value for name, text in limits.items() if (value := _number(name, text)) > 0}
    share = _number("carryover_factor", policy.get("carryover_factor")) / 100
    carried = (
        {
            name: min(max(Decimal(0), has - used.get(name, Decimal(0))), share * has)
            for name, has in base.items()
        }
        if used is not None and policy.get("carryover_enabled")
        else {}
    )
    totals = {name: has + carried.get(name, Decimal(0)) for name, has in base.items()}
    grace = 1 + max(Decimal(0), _number("grace_ratio", policy.get("grace_ratio")))
    hours = dict(totals)
    if policy.get("tres_billing_enabled"):
        weights = policy.get("tres_billing_weights")
        known = (
            {str(name).lower(): weight for name, weight in weights.items()}
            if isinstance(weights, Mapping)
            else {}
        )
        hours[BILLING] = sum(
            (has * _number(f"weight of {name}", known.get(name.lower())) for name, has in totals.items()),
            Decimal(0),
        )
        if int(hours[BILLING] * MINUTES) == 0:
            # Such a limit stops all jobs.
            raise PlanRefused(
                f"its weights are unknown: tres_billing_weights is {str(weights)[:80]}, "
                f"and billing of {', '.join(totals) or 'no limits'} would be 0"
            )
    try:
        limit_type = LimitType(policy.get("limit_type") or LimitType.GRP_TRES_MINS)
    except ValueError as error:
        raise PlanRefused(f"its limit_type is {policy.get('limit_type')!r}") from error
    added = f", and a grace of {grace - 1:.0%}" if grace > 1 else ""
    reasons = {
        name: f"{_plain(has)} h{f' and {_plain(carried[name])} h carried over' if carried.get(name) else ''}{added}"
        for name, has in base.items()
    }
    return PolicySettings(
        limit_type,
        max(1, int(sum(totals.values()) / 3)),
        {name: int(int(value * MINUTES) * grace) for name, value in hours.items()},
        {**reasons, BILLING: f"the hours of all components, weighted{added}"},
    )


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"


def _number(what: str, value: Any) -> Decimal:
    """Return a number; nothing is 0. Raises PlanRefused."""
    try:
        found = Decimal(str(value or 0))
    except InvalidOperation as error:
        raise PlanRefused(f"{what} is {str(value)[:40]!r}, which is no number") from error
    if not found.is_finite():
        raise PlanRefused(f"{what} is {found}, which is no number")
    return found
