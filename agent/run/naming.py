# SPDX-License-Identifier: MIT
"""Choosing the account's name for a new allocation: free on the cluster, free in Waldur, ours if half made.

The name is claimed in Waldur before the account is made, so a resource that has a backend id keeps it. Where
the server lost the claim again, the account that stands below the right project and that no other resource
names is the one we began: it is taken over, not made a second time.
"""

from __future__ import annotations

from agent.core.errors import PlanRefused
from agent.core.model import AllocationSpec, Snapshot
from agent.core.names import fold
from agent.plan.allocations import OfferingRules
from agent.plan.orders import OrderCase, account_names, allocation
from agent.run.sites import Site
from agent.waldur import offerings, resources


def chosen_spec(
    site: Site, case: OrderCase, rules: OfferingRules, snapshot: Snapshot, reserved: set[str]
) -> AllocationSpec:
    """The allocation with its final name. Raises PlanRefused when every name that may be used is taken.

    `reserved`: names that other orders of this pass will use; the chosen one is added.
    """
    if case.resource.backend_id:
        spec = site.backend.canonical(allocation(case, rules, case.resource.backend_id), snapshot)
        reserved.add(spec.account.name)
        return spec
    taken = ""
    for name in account_names(case, rules.names):
        spec = site.backend.canonical(allocation(case, rules, name), snapshot)
        taken = _taken(site, case, rules, snapshot, spec, reserved)
        if not taken:
            reserved.add(spec.account.name)
            return spec
    raise PlanRefused(taken)


def _taken(
    site: Site,
    case: OrderCase,
    rules: OfferingRules,
    snapshot: Snapshot,
    spec: AllocationSpec,
    reserved: set[str],
) -> str:
    """Why the name cannot be used, empty when it can."""
    name = spec.account.name
    if name in reserved or name in {ancestor.name for ancestor in spec.ancestors}:
        return f"account name {name} is in use for another account of the same order or pass"
    standing = snapshot.accounts.get(name)
    if standing is not None:
        if standing.parent != fold(spec.account.parent):
            return f"account {name} exists already, below {standing.parent or 'nothing'} and not {spec.account.parent}"
        others = resources.holders_of(site.client, name) - {case.resource.uuid}
        return f"account {name} exists already and belongs to resource {min(others)}" if others else ""
    if rules.names.check_uniqueness:
        free = offerings.name_is_free(site.client, name, all_offerings=rules.names.check_all_offerings)
        return "" if free else f"Waldur says that the account name {name} is not unique"
    return ""
