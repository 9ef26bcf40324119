# SPDX-License-Identifier: MIT
"""Limits have one owner: the cluster, whose GrpTRESMins Waldur then shows, or Waldur, whose limits the cluster gets.

Prepaid components belong to neither: their limit grows with the months bought, and is set by orders. Where a
periodic usage policy writes limits, all of them are the policy's: whoever copied them would feed it its own
output (the echo loop).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent.core.errors import PlanRefused
from agent.core.model import AccountingType, Component
from agent.core.units import backend_limits, countable, limit_number, targets_of


@dataclass(frozen=True, slots=True)
class LimitRules:
    """`from_waldur`: who owns the limits. `periodic`: a policy in Waldur does, so nothing is copied."""

    components: tuple[Component, ...]
    from_waldur: bool = False
    periodic: bool = False

    def owned(self) -> tuple[Component, ...]:
        """Return the components whose limits are kept in step."""
        if self.periodic:
            return ()
        prepaid = {tres for c in self.components if _is_prepaid(c) for tres in targets_of(c)}
        return tuple(c for c in self.components if not _is_prepaid(c) and not prepaid & set(targets_of(c)))


def shown(
    in_waldur: Mapping[str, Any], on_cluster: Mapping[str, int], rules: LimitRules
) -> dict[str, Any] | None:
    """Return all limits as Waldur should show them, in its units; None where it does already.

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
        # A TRES that two components share does not tell the limit of either.
        if any(counted[tres] > 1 or tres not in on_cluster for tres in targets):
            continue
        values = {int(on_cluster[tres] / factor) for tres, factor in targets.items() if factor}
        if len(values) == 1 and any(same.get(tres, -1) != on_cluster[tres] for tres in targets):
            limits[component.name] = values.pop()
    return limits if limits != dict(in_waldur) else None


def wanted(in_waldur: Mapping[str, Any], rules: LimitRules, tres: Iterable[str]) -> dict[str, int]:
    """Return limits for the cluster as Waldur has them, of TRES that it tracks. Raises PlanRefused for what is no
    number.
    """
    known = set(tres)
    owned = rules.owned()
    asked = {c.name: in_waldur[c.name] for c in owned if c.name in in_waldur}
    found = backend_limits(asked, owned).values
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
            found[tres] = found.get(tres, 0) + int(countable(tres, number * factor))
    return found


def _is_prepaid(component: Component) -> bool:
    return component.accounting_type is AccountingType.ONE
