# SPDX-License-Identifier: MIT
"""Resources that are OK in Waldur and name no account, while theirs stands: a server may lose a backend id.

An account is theirs when it has the name that they would get, stands below their project's account, and is
named by nobody else. Where two of them would get the same name, nobody can tell, and neither gets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set

from agent.core.account_names import fold
from agent.core.model import Resource, ResourceState, Snapshot
from agent.core.waldur_actions import ClaimAccount
from agent.plan import allocations
from agent.plan.allocations import OfferingRules

PROJECT_SLUG_POLICY = "project_slug"


def claims(
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
