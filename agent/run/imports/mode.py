# SPDX-License-Identifier: MIT
"""Accounts that stand on the cluster without a resource in Waldur are offered for import, when somebody asks.

An account is offered when it is in nobody's hands: below a project's account whose slug a project in Waldur has,
without accounts below it, and named by no resource of ours or of another offering. Nothing is changed on the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from agent.core.errors import SiteAgentError, WaldurError
from agent.core.model import Account, Part, Resource, Snapshot
from agent.core.names import fold
from agent.plan.shared_limits import LimitRules, shown
from agent.run import gate as policing
from agent.run.membership.facts import HANDLED, IN_PROGRESS
from agent.run.site import Site
from agent.state import claims
from agent.waldur import imports, pool, resources
from backends.base import Scope

log = logging.getLogger(__name__)

HAS_ACCOUNT = (*HANDLED, *IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class Importable:
    account: str
    project_slug: str
    limits: Mapping[str, Any]


def run(site: Site, request_uuid: str) -> str:
    """Answer one request; what came of it, in words. Raises SiteAgentError where another try may help."""
    state = imports.state(site.client, request_uuid)
    if state not in (imports.SENT, imports.PROCESSING):
        return f"the request is {state or 'in no known state'}: nothing to do"
    try:
        if state == imports.SENT:
            imports.begin(site.client, request_uuid)
        said = _answer(site)
    except SiteAgentError as error:
        if error.retryable:
            raise
        if isinstance(error, WaldurError) and imports.is_gone(error):
            return f"the request has moved on: {error}"
        imports.fail(site.client, request_uuid, str(error))
        raise
    imports.finish(site.client, request_uuid)
    log.info("import request %s of offering %s: %s", request_uuid, site.offering.name, said)
    return said


def importable(site: Site, snapshot: Snapshot, named: Iterable[str]) -> Iterator[Importable]:
    """What stands on the cluster in nobody's hands. `named`: accounts that Waldur or another offering names. Pure."""
    taken = {*map(fold, named), site.backend.home, *policing.rules_of(site).protected_accounts}
    prefix = fold(site.offering.names.project_prefix)
    rules = LimitRules(tuple(site.offering.components.values()))
    for account in sorted(snapshot.accounts.values(), key=lambda a: a.name):
        slug = _project_slug(account, prefix)
        if slug and account.name not in taken and not snapshot.children_of(account.name):
            yield Importable(account.name, slug, shown({}, account.limits, rules) or {})


def _answer(site: Site) -> str:
    snapshot = site.backend.observe(Scope(parts=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS})))
    snapshot.require(Part.ACCOUNTS)
    foreign = claims.of_others(site)
    known = resources.listed(site.client, HAS_ACCOUNT)
    before = imports.offered(site.client)
    named = (*(resource.backend_id for resource in known), *foreign.accounts)
    found = [each for each in importable(site, snapshot, named) if each.account not in before]
    projects = _projects(site, known, {each.project_slug for each in found})
    offered = 0
    for each in found:
        project = projects[each.project_slug]
        if isinstance(project, WaldurError):
            raise project
        if project and not resources.holders_of(site.client, each.account, everywhere=True):
            imports.offer(site.client, each.account, project, each.limits)
            offered += 1
    return (
        f"{offered} accounts offered, {len(before)} were before, {len(found) - offered} belong to no project"
    )


def _projects(site: Site, known: Iterable[Resource], slugs: Set[str]) -> Mapping[str, str | WaldurError]:
    """Uuids of projects by slug: a provider may not see every project, but those of its own resources."""
    told = {resource.project_slug: resource.project_uuid for resource in known}
    asked = sorted(slugs - told.keys())
    return {**told, **pool.each(asked, lambda slug: imports.project_with_slug(site.client, slug))}


def _project_slug(account: Account, prefix: str) -> str:
    """The slug of the project that an account is below; empty where it is below none."""
    parent = account.parent or ""
    return parent.removeprefix(prefix) if parent.startswith(prefix) and parent != prefix else ""
