# SPDX-License-Identifier: MIT
"""What was lost: accounts that Waldur names and the cluster has no more, and the backend ids of resources in Waldur.

One account that is gone may have been removed by hand. All of an offering's at once, or many and more than half, are
signs of an emptied database or of another cluster: then no order is failed and nothing is changed.

A resource that is OK in Waldur and names no account has lost its backend id where an account stands that has the name
which it would get, below its project's account, and that no other resource names. Where two of them would get the same
name, it is unknown whose it is, and neither gets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import replace

from agent.core.account_names import fold
from agent.core.errors import AccountsLost, PlanRefused
from agent.core.model import AllocationSpec, Resource, ResourceState, Snapshot
from agent.core.printable import shortlist
from agent.core.units import backend_limits
from agent.core.waldur_actions import ClaimAccount
from agent.plan import allocations, shared_limits
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
    raise AccountsLost(
        f"{len(gone)} of the {len(named)} accounts that Waldur names are not on cluster {snapshot.cluster}: "
        f"{shortlist(gone, NAMED_AT_MOST)}. Was its accounting database emptied, or is it another cluster? "
        "Nothing is done. Once the cluster is right, `rebuild` shows how they are made again from Waldur"
    )


def allocation(
    resource: Resource, rules: OfferingRules, account: str, members: tuple[str, ...], snapshot: Snapshot
) -> AllocationSpec:
    """Return the allocation that a resource had: its account, place, limits and members, as Waldur has them now.

    Without what is prepaid where Waldur reports no end. Raises PlanRefused where Waldur gives no slug, or a limit that
    is none.
    """
    months = shared_limits.months_of(resource, rules.components)
    spending = shared_limits.spending_of(resource, rules.components, from_waldur=rules.limits_from_waldur)
    try:
        limits = backend_limits(resource.limits, rules.components, months=months, caps=spending.caps).values
    except PlanRefused as refused:
        raise PlanRefused(f"resource {resource.uuid}: {refused}") from refused
    if months is None:
        # How much was bought is unknown: the membership pass sets it once Waldur reports the dates.
        bought = tuple(component for component in rules.components if component.name in resource.limits)
        unknown = shared_limits.LimitRules(bought).prepaid_tres()
        limits = {tres: value for tres, value in limits.items() if tres not in unknown}
    return replace(allocations.allocation(resource, rules, account, snapshot, members=members), limits=limits)


PROJECT_SLUG_POLICY = "project_slug"


def claims_of_lost_ids(
    resources: Iterable[Resource], rules: OfferingRules, snapshot: Snapshot, named: Set[str]
) -> list[ClaimAccount]:
    """Return the claims that write its account's name back to each resource that lost it. `named`: accounts that any
    resource names.
    """
    names = rules.names
    orphans: list[tuple[Resource, str]] = []
    for resource in resources:
        if resource.state is ResourceState.OK and not resource.backend_id:
            by_project = resource.plugin_options.get("account_name_generation_policy") == PROJECT_SLUG_POLICY
            slug = resource.project_slug if by_project else resource.slug
            name = fold(names.allocation_prefix + slug)[: names.max_length] if slug else ""
            orphans.append((resource, name))
    counted = Counter(name for _, name in orphans)
    found = []
    for resource, name in orphans:
        standing = snapshot.accounts.get(name)
        if not name or counted[name] > 1 or name in named or standing is None or not resource.project_slug:
            continue
        if standing.parent == fold(allocations.project_account(resource, rules, name, snapshot)):
            found.append(
                ClaimAccount(
                    resource=resource.uuid,
                    account=name,
                    reason="its account stands, and Waldur has lost its name",
                )
            )
    return found
