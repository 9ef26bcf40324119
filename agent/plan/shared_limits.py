# SPDX-License-Identifier: MIT
"""Limits have one owner: the cluster, whose GrpTRESMins Waldur then shows, or Waldur, whose limits the cluster gets.

Prepaid components are always Waldur's: their limit is what was bought, times the months from the resource's creation
to its end, and no figure of the cluster shows that either. Where a periodic usage policy writes limits, all of them are
the policy's: a copy of them would give the policy its own output (the echo loop).

Spending limits that people set on a resource in Waldur lower limits on the cluster. Waldur sends them since 8.1 by
component and period (day, week, month, quarter, year, total), in the component's units. A cluster has limits without a
period: `total` is kept there, where limits come from Waldur and the component has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

from agent.core.errors import PlanRefused
from agent.core.model import AccountingType, Component, Resource
from agent.core.units import (
    Shares,
    backend_limits,
    limit_number,
    prepaid_months,
    require_countable,
    targets_of,
    tres_shares,
)


@dataclass(frozen=True, slots=True)
class LimitRules:
    """Who owns the limits of an offering's allocations."""

    components: tuple[Component, ...]
    # Waldur does, else the cluster.
    from_waldur: bool = False
    # A policy in Waldur does, so nothing is copied.
    periodic: bool = False

    def owned(self) -> tuple[Component, ...]:
        """Return the components whose limits are kept in step."""
        if self.periodic:
            return ()
        prepaid = self.prepaid_tres()
        return tuple(c for c in self.components if not _is_prepaid(c) and not prepaid & set(targets_of(c)))

    def prepaid_tres(self) -> frozenset[str]:
        """Return what prepaid components bring limits of, alone or together with others."""
        return frozenset(tres for c in self.components if _is_prepaid(c) for tres in targets_of(c))


def months_of(resource: Resource, components: Iterable[Component], until: date | None = None) -> int | None:
    """Return the prepaid months of a resource, from its creation to its end, or to `until`, the end that a renewal
    brings. None where nothing is prepaid, or Waldur reports no dates.
    """
    end = until or resource.end_date
    if end is None or resource.created is None or not any(map(_is_prepaid, components)):
        return None
    return prepaid_months(resource.created, end)


def shares_of(resource: Resource | None, components: Sequence[Component]) -> Shares:
    """Return how the components of a resource share what is used of TRES that several of them name."""
    if resource is None:
        return tres_shares(components, {})
    return tres_shares(components, resource.limits, months=months_of(resource, components))


def prepaid(
    resource: Resource, rules: LimitRules, tres: Iterable[str], caps: Mapping[str, Decimal] | None = None
) -> dict[str, int]:
    """Return limits for the cluster of what was bought for months, of TRES that it tracks; they change with the end of
    the resource. Raises PlanRefused for what is no number, and where Waldur reports no end: how much it is is unknown.
    """
    wanted_tres = rules.prepaid_tres() & set(tres)
    bought = [
        c.name
        for c in rules.components
        if _is_prepaid(c) and c.name in resource.limits and wanted_tres & set(targets_of(c))
    ]
    if rules.periodic or not bought:
        return {}
    months = months_of(resource, rules.components)
    if months is None:
        missing = "no end date" if resource.created else "no date of its creation"
        raise PlanRefused(
            f"{', '.join(bought)} is prepaid by the month, and Waldur gives the resource {missing}"
        )
    asked = {c.name: resource.limits[c.name] for c in rules.components if c.name in resource.limits}
    found = backend_limits(asked, rules.components, months=months, caps=caps).values
    return {name: value for name, value in found.items() if name in wanted_tres}


def for_waldur(
    in_waldur: Mapping[str, Any], on_cluster: Mapping[str, int], rules: LimitRules
) -> dict[str, Any] | None:
    """Return all limits as Waldur should have them, in its units; None where it has them already.

    A limit that the cluster does not have stays as Waldur has it, and so does one that comes out the same on the
    cluster: 1.5 hours are not rounded to 1 because 90 minutes were read back.
    """
    owned = rules.owned()
    same: Mapping[str, int] = {}
    with suppress(PlanRefused):
        same = backend_limits({k: v for k, v in in_waldur.items() if v is not None}, owned).values
    counted = Counter(tres for component in owned for tres in targets_of(component))
    limits = dict(in_waldur)
    for component in owned:
        targets = targets_of(component)
        # A TRES that two components share does not show the limit of either.
        if any(counted[tres] > 1 or tres not in on_cluster for tres in targets):
            continue
        values = {int(on_cluster[tres] / factor) for tres, factor in targets.items() if factor}
        if len(values) == 1 and any(same.get(tres, -1) != on_cluster[tres] for tres in targets):
            limits[component.name] = values.pop()
    return limits if limits != dict(in_waldur) else None


def wanted(
    in_waldur: Mapping[str, Any],
    rules: LimitRules,
    tres: Iterable[str],
    caps: Mapping[str, Decimal] | None = None,
) -> dict[str, int]:
    """Return limits for the cluster as Waldur has them, of TRES that it tracks; `caps` by component lower them. Raises
    PlanRefused for what is no number.
    """
    known = set(tres)
    owned = rules.owned()
    asked = {c.name: in_waldur[c.name] for c in owned if c.name in in_waldur}
    found = backend_limits(asked, owned, caps=caps).values
    return {name: value for name, value in found.items() if name in known}


def of_user(asked: Mapping[str, Any], components: Sequence[Component]) -> dict[str, int]:
    """Return limits of one user in backend units, whatever the component's accounting. Raises PlanRefused."""
    known = {c.name: c for c in components}
    found: dict[str, int] = {}
    for name, value in asked.items():
        if name not in known:
            continue
        # Whole units, as they have always been counted here: the fraction of a limit was never enforced.
        number = int(limit_number(name, value))
        for tres, factor in targets_of(known[name]).items():
            found[tres] = found.get(tres, 0) + int(require_countable(tres, number * factor))
    return found


def _is_prepaid(component: Component) -> bool:
    return component.accounting_type is AccountingType.ONE


TOTAL = "total"


@dataclass(frozen=True, slots=True)
class SpendingLimits:
    """What may be spent, as far as a cluster can keep it."""

    # The most that counts of a component, in its units.
    caps: Mapping[str, Decimal] = field(default_factory=dict)
    # Sentences on those that are not kept.
    notes: tuple[str, ...] = ()


def spending_of(
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
