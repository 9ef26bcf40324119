# SPDX-License-Identifier: MIT
"""Spending limits that people set on a resource in Waldur: what of them lowers limits on the cluster, and what cannot.

Waldur sends them since 8.1 by component and period (day, week, month, quarter, year, total), in the component's units.
A cluster has limits without a period: `total` is kept there, where limits come from Waldur and the component has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from agent.core.errors import PlanRefused
from agent.core.model import AccountingType, Component, Resource
from agent.core.units import limit_number

TOTAL = "total"


@dataclass(frozen=True, slots=True)
class SpendingLimits:
    """`caps`: the most that counts of a component, in its units; `notes`: sentences on those that are not kept."""

    caps: Mapping[str, Decimal] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def of_resource(
    resource: Resource, components: Iterable[Component], *, from_waldur: bool, periodic: bool = False
) -> SpendingLimits:
    """Return the spending limits of a resource. `from_waldur`: limits of the cluster are Waldur's; those of prepaid
    components always are. `periodic`: a policy in Waldur writes them, and nothing else may.
    """
    known = {component.name: component for component in components}
    caps: dict[str, Decimal] = {}
    notes: list[str] = []
    for name, periods in sorted(resource.spending_limits.items()):
        if not isinstance(periods, Mapping):
            notes.append(
                f"spending limits of {name} are not kept: {str(periods)[:40]!r} is no map of periods"
            )
            continue
        for period, amount in sorted(periods.items(), key=lambda item: str(item[0])):
            if amount is None:
                continue
            why = _obstacle(known.get(name), period, from_waldur=from_waldur, periodic=periodic)
            try:
                number = limit_number(name, amount)
            except PlanRefused as refused:
                why = why or str(refused)
            if why:
                notes.append(f"the spending limit of {name} ({period}) is not kept on the cluster: {why}")
            else:
                caps[name] = number
    return SpendingLimits(caps, tuple(notes))


def _obstacle(component: Component | None, period: object, *, from_waldur: bool, periodic: bool) -> str:
    """Return why a spending limit cannot be kept on the cluster, empty where it can."""
    if component is None:
        return "no such component in backend_components"
    if period != TOTAL:
        return "it has no limits for a period, so Waldur has to watch it"
    if periodic:
        return "a periodic policy of Waldur writes the limits"
    if component.accounting_type is AccountingType.ONE:
        return ""
    if not from_waldur:
        return "limits_source is `cluster`"
    if component.accounting_type is not AccountingType.LIMIT and component.limit is None:
        return "the component has no limit that it could lower"
    return ""
