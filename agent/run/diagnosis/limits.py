# SPDX-License-Identifier: MIT
"""What an account should be limited to, for its diagnosis: what was bought, or what a periodic policy would set. A pass
plans neither of the two: where the cluster's limits count it shows those in Waldur, and a policy's come as messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from agent.core.actions import ClusterAction
from agent.core.errors import PlanRefused
from agent.core.model import OrderType, Resource, Snapshot
from agent.core.periodic import DesiredSettings, LimitType, ObservedSettings
from agent.core.periodic_actions import SetFairshare
from agent.plan import accounts, periodic, policy_settings, shared_limits
from agent.plan.shared_limits import LimitRules
from agent.run.periodic.mode import ReadOnce, spelled
from agent.run.site import Site
from agent.waldur import offerings, orders, usages
from agent.waldur.policies import LIMIT_PERIODS, PeriodicPolicy


@dataclass(frozen=True, slots=True)
class Expected:
    """One field as it is and as it should be, why, and the action that corrects it; None where it agrees."""

    name: str
    actual: str | None
    expected: str
    reason: str
    action: ClusterAction | None


def bought(
    site: Site, resource: Resource, account: str, rules: LimitRules, snapshot: Snapshot
) -> Iterator[Expected]:
    """Yield the limits that were bought and that the cluster does not have, where the cluster's own count: a pass shows
    what the cluster has in Waldur, so the last order says what was bought. Raises WaldurError, and PlanRefused where
    that cannot be limits.
    """
    if rules.from_waldur or rules.periodic:
        return
    done = orders.done(site.client, resource.uuid)
    last = next(
        (o for o in reversed(done) if o.limits and o.type in (OrderType.CREATE, OrderType.UPDATE)), None
    )
    asked: Mapping[str, Any] = last.limits if last else resource.limits
    reason = f"bought by order {last.uuid} ({last.type})" if last else f"limits of resource {resource.uuid}"
    reason += (
        ". The cluster's limits count (limits_source: cluster): a pass shows them in Waldur, and sets none"
    )
    wanted = shared_limits.wanted(asked, rules, snapshot.tres)
    for action in accounts.limits(account, wanted, snapshot, reason):
        has = snapshot.accounts[account].limits
        for tres, value in sorted(wanted.items()):
            if has.get(tres) != value:
                yield Expected(f"GrpTRESMins[{tres}]", _text(has.get(tres)), str(value), reason, action)


def of_policy(
    site: Site, resource: Resource, account: str, policy: PeriodicPolicy, observed: ObservedSettings
) -> Iterator[Expected]:
    """Yield the share and the limits that a policy would set now, with what the account has. Raises WaldurError, and
    PlanRefused where the policy's figures cannot be limits of this cluster.
    """
    used = _used_before(site, resource, policy) if policy.values.get("carryover_enabled") else None
    asked = policy_settings.of_policy(policy.values, resource.limits, used)
    names = spelled(site, asked.limits, ReadOnce())
    limits = {names[name]: value for name, value in asked.limits.items()}
    reasons = {names[name]: asked.reasons.get(name, "") for name in asked.limits}
    desired = DesiredSettings(account, asked.fairshare, {asked.limit_type: limits})
    reason = f"policy {policy.uuid} ({policy.values.get('period_name') or policy.granularity})"
    actions = periodic.changes(desired, observed, reason=reason, resets_usage=False)
    share = next((action for action in actions if isinstance(action, SetFairshare)), None)
    has_share = "parent" if observed.fairshare is None else str(observed.fairshare)
    yield Expected("fairshare", has_share, str(asked.fairshare), f"{reason}: a third of all hours", share)
    cut = next((action for action in actions if not isinstance(action, SetFairshare)), None)
    has = observed.limits.get(asked.limit_type, {})
    for tres, value in sorted(limits.items()):
        action = None if has.get(tres) == value else cut
        yield Expected(
            f"{asked.limit_type}[{tres}]",
            _text(has.get(tres)),
            str(value),
            f"{reason}: {reasons[tres]}",
            action,
        )


def _used_before(site: Site, resource: Resource, policy: PeriodicPolicy) -> dict[str, Decimal] | None:
    """Return what was used in the policy's period before, by component; None of a period without an end. Raises
    WaldurError, and PlanRefused where Waldur counts in another period.
    """
    if policy.granularity is None:
        raise PlanRefused(
            f"its period is {str(policy.values.get('period'))[:40]}, which is unknown, and so is what is carried over"
        )
    for component in offerings.facts(site.client).components:
        own = component.fields.get("limit_period")
        if own and resource.limits.get(component.type) and LIMIT_PERIODS.get(own) != policy.granularity:
            raise PlanRefused(
                f"the limit of {component.type} is for another period ({str(own)[:40]}) than the policy "
                f"({policy.granularity}), and what is carried over is unknown"
            )
    months = policy_settings.months_before(datetime.now(UTC), policy.granularity)
    used: dict[str, Decimal] = {}
    for month in months:
        for record in usages.of_month(site.client, month, resource.uuid):
            used[record.component] = used.get(record.component, Decimal(0)) + (record.amount or 0)
    return used if months else None


def type_of(policy: PeriodicPolicy) -> LimitType:
    """Return the type of the limits that a policy sets."""
    return LimitType(policy.values.get("limit_type") or LimitType.GRP_TRES_MINS)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
