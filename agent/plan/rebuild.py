# SPDX-License-Identifier: MIT
"""Accounts that Waldur names and the cluster has lost: when they are the site's fault, and how they are made again.

One account that is gone may have been removed by hand. All of an offering's at once, or many and more than half, tell
of an emptied database or of another cluster: then no order is failed and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from agent.core.errors import AccountsLost, PlanRefused
from agent.core.model import AllocationSpec, Resource, Snapshot
from agent.core.units import backend_limits
from agent.plan import allocations, shared_limits, spending_limits
from agent.plan.allocations import OfferingRules

MANY = 10
NAMED_AT_MOST = 5


def lost(named: Set[str], snapshot: Snapshot, *, alone: bool = False) -> Set[str]:
    """Return which of these accounts are gone, where it is all of them, or many and more than half; else none. `alone`:
    also where it is all of one.
    """
    gone = named - set(snapshot.accounts)
    is_all = len(gone) == len(named) and (alone or len(gone) > 1)
    return gone if is_all or (len(gone) >= MANY and 2 * len(gone) > len(named)) else frozenset()


def require_accounts(named: Set[str], snapshot: Snapshot) -> None:
    """Raise AccountsLost where so many of the accounts that Waldur names are gone that the site must be at fault."""
    gone = sorted(lost(named, snapshot))
    if not gone:
        return
    more = f" and {len(gone) - NAMED_AT_MOST} more" if len(gone) > NAMED_AT_MOST else ""
    raise AccountsLost(
        f"{len(gone)} of the {len(named)} accounts that Waldur names are not on cluster {snapshot.cluster}: "
        f"{', '.join(gone[:NAMED_AT_MOST])}{more}. Was its accounting database emptied, or is it another cluster? "
        "Nothing is done. Once the cluster is right, `rebuild` shows how they are made again from Waldur"
    )


def allocation(
    resource: Resource, rules: OfferingRules, account: str, members: tuple[str, ...], snapshot: Snapshot
) -> AllocationSpec:
    """Return the allocation that a resource had: its account, place, limits and members, as Waldur has them now.

    Without what is prepaid where Waldur tells no end. Raises PlanRefused where Waldur gives no slug, or a limit that is
    none.
    """
    months = shared_limits.months_of(resource, rules.components)
    spending = spending_limits.of_resource(resource, rules.components, from_waldur=rules.limits_from_waldur)
    try:
        limits = backend_limits(resource.limits, rules.components, months=months, caps=spending.caps).values
    except PlanRefused as refused:
        raise PlanRefused(f"resource {resource.uuid}: {refused}") from refused
    if months is None:
        # Nobody knows how much was bought: the membership pass sets it once Waldur tells the dates.
        bought = tuple(component for component in rules.components if component.name in resource.limits)
        unknown = shared_limits.LimitRules(bought).prepaid_tres()
        limits = {tres: value for tres, value in limits.items() if tres not in unknown}
    return replace(allocations.allocation(resource, rules, account, snapshot, members=members), limits=limits)
