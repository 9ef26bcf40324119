# SPDX-License-Identifier: MIT
"""From Waldur's units to the cluster's and back: factors, component mapping, prepaid months.

Whole numbers come out: a cluster counts TRES-minutes in integers. Decimal is used so that `1.1 * 60000`
is 66000 and not 66000.00000000001.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

from agent.core.components import AccountingType, Component
from agent.core.errors import PlanRefused

# SLURM keeps limits as unsigned 64 bit and takes more as "no limit" (22.05: an overflow silently removed it).
MAX_BACKEND_VALUE = 2**63 - 1

MAX_DIGITS = 40
PRECISION = 60
CENT = Decimal("0.01")
WHOLE = Decimal(1)
# Added to a whole amount, it gives two decimals.
ZERO = Decimal("0.00")

# Component -> TRES -> its part of what is counted there.
Shares = Mapping[str, Mapping[str, Decimal]]

LIMIT_TYPES = frozenset({AccountingType.LIMIT, AccountingType.ONE})


@dataclass(frozen=True, slots=True)
class BackendLimits:
    """Limits for the cluster, and what was asked for but skipped, with the reason for each."""

    values: Mapping[str, int]
    skipped: tuple[str, ...] = ()


def limit_number(component: str, value: Any) -> Decimal:
    """Return a limit as Waldur sent it, checked. Raises PlanRefused with a sentence for the order's message."""
    if value is None:
        raise PlanRefused(f"limit of {component} is null: a number of 0 or more is needed")
    if isinstance(value, bool):
        raise PlanRefused(f"limit of {component} is {value!r}: a number of 0 or more is needed")
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise PlanRefused(f"limit of {component} is {value!r}: a number of 0 or more is needed") from None
    if not number.is_finite() or number < 0:
        raise PlanRefused(f"limit of {component} is {value}: a number of 0 or more is needed")
    return require_countable(component, number)


def prepaid_months(start: date, end: date) -> int:
    """Return months between two dates, a begun month counted whole, at least 1."""
    months = (end.year - start.year) * 12 + end.month - start.month
    return max(1, months + (1 if end.day > start.day else 0))


def targets_of(component: Component) -> Mapping[str, Decimal]:
    """Return the TRES names of one component with the factor of each."""
    if component.targets:
        return {name: Decimal(str(factor)) for name, factor in component.targets.items()}
    return {component.name: Decimal(str(component.unit_factor))}


def backend_limits(
    asked: Mapping[str, Any],
    components: Iterable[Component],
    *,
    months: int | None = None,
    with_static: bool = True,
    caps: Mapping[str, Decimal] | None = None,
) -> BackendLimits:
    """Return the limits of an order in backend units.

    Limit and prepaid components count as asked, prepaid ones times `months` where that is known; usage
    components count with their configured `limit`, when `with_static`; none of them with more than its part of `caps`.
    Two components may have one TRES: their values add up. Raises PlanRefused when a number that was asked for cannot
    be used; a static limit that cannot is no order's fault and skipped.
    """
    known = {c.name: c for c in components}
    skipped = [f"{name}: no such component in backend_components" for name in asked if name not in known]
    if with_static:
        skipped += [
            f"{c.name}: its static limit is {c.limit}, which no limit can be: a number of 0 or more is needed"
            for c in known.values()
            if c.limit is not None and c.accounting_type is AccountingType.USAGE and not _has_static(c)
        ]
    totals: dict[str, Decimal] = {}
    orders: dict[str, list[str]] = {}
    for component in known.values():
        number = _asked_of(component, asked, months=months, with_static=with_static)
        if number is None:
            continue
        cap = (caps or {}).get(component.name, number)
        if cap < number:
            skipped.append(
                f"{component.name}: {_digits(number)} is lowered to its spending limit, {_digits(cap)}"
            )
            number = cap
        for tres, factor in targets_of(component).items():
            totals[tres] = totals.get(tres, Decimal(0)) + number * factor
            orders.setdefault(tres, []).append(f"{_digits(number)} of {component.name} * {_digits(factor)}")
    values = {tres: _whole(tres, total, " + ".join(orders[tres])) for tres, total in sorted(totals.items())}
    skipped += [
        f"{tres}: {' + '.join(orders[tres])} is kept as {values[tres]}: the cluster counts in whole units"
        for tres, total in sorted(totals.items())
        if total != values[tres]
    ]
    return BackendLimits(values, tuple(skipped))


def tres_shares(
    components: Iterable[Component], asked: Mapping[str, Any], *, months: int | None = None
) -> Shares:
    """Return how the TRES that several components name are shared between them: component -> TRES -> its part of 1.

    Each has the part that it brings into the limit of the TRES; where none brings any, they have equal parts. What was
    used counts once that way (the reference counts it for each of them). TRES of one component are omitted.
    """
    users: dict[str, list[Component]] = {}
    for component in components:
        for tres in targets_of(component):
            users.setdefault(tres, []).append(component)
    found: dict[str, dict[str, Decimal]] = {}
    with localcontext() as context:
        context.prec = PRECISION
        for tres, several in users.items():
            if len(several) < 2:
                continue
            brought = [_brought(c, asked, months) * targets_of(c)[tres] for c in several]
            whole = sum(brought)
            for component, part in zip(several, brought, strict=True):
                share = part / whole if whole else Decimal(1) / len(several)
                found.setdefault(component.name, {})[tres] = share
    return found


def sharing(names: Iterable[str], shares: Shares) -> set[str]:
    """Return these components with all that share a TRES with one of them, also by way of others."""
    found = set(names)
    while True:
        tres = {each for name in found for each in shares.get(name, ())}
        more = {name for name, parts in shares.items() if not tres.isdisjoint(parts)} - found
        if not more:
            return found
        found |= more


def _brought(component: Component, asked: Mapping[str, Any], months: int | None) -> Decimal:
    """Return what a component brings into limits, in its own units; 0 where that is no number."""
    try:
        return _asked_of(component, asked, months=months, with_static=True) or Decimal(0)
    except PlanRefused:
        return Decimal(0)


def reported_amount(
    component: Component, counts: Mapping[str, int], scale: int, shares: Shares | None = None
) -> Decimal:
    """Return what was used of one component, in Waldur's units: divided once, and rounded to the two decimals that it
    takes.

    A component with `targets` is the sum over these and comes out whole, as the reference reports it. `shares`: of
    TRES that other components name as well. Half a hundredth goes up: the reference rounds floats, up or down, and what
    is below the figure that it has reported would be held. `scale`: counts per unit of the cluster's limits.
    """
    shared = (shares or {}).get(component.name, {})
    own = component.unit_factor_reporting or component.unit_factor
    factors = targets_of(component) if component.targets else {component.name: Decimal(str(own))}
    with localcontext() as context:
        context.prec = PRECISION
        parts = (
            counts.get(name, 0) * shared.get(name, WHOLE) / (scale * factor)
            for name, factor in factors.items()
        )
        total = sum(parts, Decimal(0))
        place, tie = (WHOLE, ROUND_HALF_EVEN) if component.targets else (CENT, ROUND_HALF_UP)
        return total.quantize(place, tie) + ZERO


def waldur_limits(asked: Mapping[str, Any], components: Iterable[Component]) -> dict[str, Any]:
    """Return the limits as Waldur should show them: what was asked, and the static limits of usage components."""
    static = {c.name: _plain(c.limit) for c in components if c.limit and _has_static(c)}
    return {**asked, **static}


def _asked_of(
    component: Component, asked: Mapping[str, Any], *, months: int | None, with_static: bool
) -> Decimal | None:
    if component.accounting_type in LIMIT_TYPES:
        if component.name not in asked:
            return None
        number = limit_number(component.name, asked[component.name])
        prepaid = component.accounting_type is AccountingType.ONE
        return number * months if prepaid and months else number
    return Decimal(str(component.limit)) if with_static and _has_static(component) else None


def _has_static(component: Component) -> bool:
    """Return whether a usage component has a limit of its own that the cluster can count."""
    if component.accounting_type is not AccountingType.USAGE or component.limit is None:
        return False
    number = Decimal(str(component.limit))
    values = [number, *(number * factor for factor in targets_of(component).values())]
    return all(value.is_finite() and 0 <= value <= MAX_BACKEND_VALUE for value in values)


def _whole(tres: str, total: Decimal, origin: str) -> int:
    if not total.is_finite() or total < 0:
        raise PlanRefused(f"limit of {tres} is {origin}: a number of 0 or more is needed")
    return int(require_countable(tres, total, f"{origin} = {_digits(total)}"))


def require_countable(name: str, number: Decimal, text: str = "") -> Decimal:
    """Return the number where the cluster counts so far. Raises PlanRefused before anybody makes it whole: an int of
    1e999999999 would take all memory there is.
    """
    if number > MAX_BACKEND_VALUE:
        raise PlanRefused(
            f"limit of {name} is {text or _digits(number)}: the cluster counts no further than {MAX_BACKEND_VALUE}"
        )
    return number


def _digits(number: Decimal) -> str:
    """Return plain digits where they can be read (`276701161105643274240`, not `2.767E+20` or `.0` behind)."""
    if abs(number.adjusted()) > MAX_DIGITS:
        return str(number)
    return f"{number:f}".rstrip("0").rstrip(".") if "." in f"{number:f}" else f"{number:f}"


def _plain(number: float) -> int | float:
    return int(number) if float(number).is_integer() else number
