# SPDX-License-Identifier: MIT
"""Resources that are OK in Waldur and name no account, while theirs stands: a server may lose a backend id.

An account is theirs when it has the name that they would get, stands below their project's account, and is
named by nobody else. Where two of them would get the same name, nobody can tell, and neither gets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set

from agent.core.account_names import NameRules, fold
from agent.core.model import Resource, ResourceState, Snapshot
from agent.core.waldur_actions import ClaimAccount

PROJECT_SLUG_POLICY = "project_slug"


def claims(
    resources: Iterable[Resource], names: NameRules, snapshot: Snapshot, named: Set[str]
) -> list[ClaimAccount]:
    """Which resource gets which account's name written to it. `named`: accounts that any resource names."""
    orphans = [r for r in resources if r.state is ResourceState.OK and not r.backend_id]
    wanted = {resource.uuid: _name(resource, names) for resource in orphans}
    counted = Counter(wanted.values())
    return [
        ClaimAccount(resource=r.uuid, account=name, reason="its account stands, and Waldur has lost its name")
        for r in orphans
        if (name := wanted[r.uuid])
        and counted[name] == 1
        and name not in named
        and _stands_below_its_project(r, name, names, snapshot)
    ]


def _name(resource: Resource, names: NameRules) -> str:
    by_project = resource.plugin_options.get("account_name_generation_policy") == PROJECT_SLUG_POLICY
    slug = resource.project_slug if by_project else resource.slug
    return fold(names.allocation_prefix + slug)[: names.max_length] if slug else ""


def _stands_below_its_project(resource: Resource, name: str, names: NameRules, snapshot: Snapshot) -> bool:
    standing = snapshot.accounts.get(name)
    project = fold(names.project_prefix + resource.project_slug)
    return standing is not None and bool(resource.project_slug) and standing.parent == project
