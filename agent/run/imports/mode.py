# SPDX-License-Identifier: MIT
"""Accounts that stand on the cluster without a resource in Waldur are offered for import, when somebody asks.

An account is offered when it is in nobody's hands: below a project's account whose slug a project in Waldur has,
without accounts below it, and named by no resource of ours or of another offering. Nothing is changed on the cluster.
In a pause a request waits as it is; where we only observe it is left to whoever serves the offering.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from agent.config.model import Mode
from agent.core.account_names import fold
from agent.core.errors import OfferingPaused, WaldurError
from agent.core.model import Account, Part, Resource, Snapshot
from agent.core.policy import PolicyRules
from agent.core.waldur_actions import OfferImport, WaldurAction
from agent.plan.policy.rules import PolicyContext
from agent.plan.shared_limits import LimitRules, shown
from agent.run import engine, gate
from agent.run.engine import Request, Steps, Work
from agent.run.gate import Pass
from agent.run.site import Site
from agent.state import named_accounts
from agent.waldur import imports, pool, resources
from backends.base import Scope

log = logging.getLogger(__name__)

MODE = Mode.ORDER_PROCESS
KEY = "imports"
HAS_ACCOUNT = (*resources.HANDLED, *resources.IN_PROGRESS)
Answer = TypeVar("Answer")
REQUESTS: Mapping[type[WaldurAction], Request] = {
    OfferImport: lambda client, a: imports.offer(client, a.account, a.project, dict(a.limits)),
}


@dataclass(frozen=True, slots=True)
class Importable:
    """An account in nobody's hands, with its limits in Waldur's units."""

    account: str
    project_slug: str
    limits: Mapping[str, Any]


@dataclass(frozen=True)
class ImportFacts:
    """What could be offered, and what is known of it. `before`: accounts that were offered before. `projects`: uuids by
    slug, empty for none. `holders`: the resources that have an account, wherever that is.
    """

    snapshot: Snapshot
    found: Sequence[Importable]
    before: frozenset[str]
    projects: Mapping[str, str]
    holders: Mapping[str, Sequence[Resource]]


@dataclass(frozen=True)
class PlannedImports:
    """The accounts to be offered."""

    facts: ImportFacts
    context: PolicyContext = field(default_factory=PolicyContext)
    is_whole: bool = True

    @cached_property
    def actions(self) -> Sequence[OfferImport]:
        """One for each account that has a project, and no resource. Pure."""
        facts = self.facts
        return tuple(
            OfferImport(account=each.account, project=project, limits=tuple(each.limits.items()))
            for each in facts.found
            if (project := facts.projects.get(each.project_slug)) and not facts.holders.get(each.account)
        )

    @property
    def snapshot(self) -> Snapshot:
        return self.facts.snapshot

    def sentence(self) -> str:
        """What Waldur was offered, in words."""
        offered, found, before = len(self.actions), len(self.facts.found), len(self.facts.before)
        return f"{offered} accounts offered, {before} were before, {found - offered} belong to no project"


def run(site: Site, request_uuid: str) -> str:
    """Answer one request; what came of it, in words. Raises SiteAgentError where another try may help."""
    said = ""
    with engine.passing(site, MODE, is_recorded=False) as pass_:
        pass_.cause = f"import request {request_uuid}"
        said = _answer(pass_, request_uuid)
    error = pass_.report.error
    if error is None:
        return said
    if isinstance(error, WaldurError) and imports.is_gone(error):
        return f"the request has moved on: {error}"
    if not error.retryable:
        imports.fail(site.client, request_uuid, str(error))
    raise error


def importable(
    site: Site, rules: PolicyRules, snapshot: Snapshot, named: Iterable[str]
) -> Iterator[Importable]:
    """What stands on the cluster in nobody's hands. `named`: accounts that Waldur or another offering names. Pure."""
    taken = {*map(fold, named), site.backend.default_account, *rules.protected_accounts}
    prefix = fold(site.offering.names.project_prefix)
    limits = LimitRules(tuple(site.offering.components.values()))
    for account in sorted(snapshot.accounts.values(), key=lambda a: a.name):
        slug = _project_slug(account, prefix)
        if slug and account.name not in taken and not snapshot.children_of(account.name):
            yield Importable(account.name, slug, shown({}, account.limits, limits) or {})


def _answer(pass_: Pass, request_uuid: str) -> str:
    """Offer what can be offered, and finish the request. Raises SiteAgentError."""
    client, rules = pass_.site.client, pass_.rules
    state = imports.state(client, request_uuid)
    if state not in (imports.SENT, imports.PROCESSING):
        return f"the request is {state or 'in no known state'}: nothing to do"
    if rules.paused:
        raise OfferingPaused(f"the offering is paused {rules.paused_why}: the import request waits")
    if not gate.may_tell(rules):
        log.warning("import request %s is left as it is: mode %s", request_uuid, rules.mode)
        return f"mode {rules.mode}: the request is left as it is"
    if state == imports.SENT:
        imports.begin(client, request_uuid)
    work = engine.reconcile(pass_, _steps(pass_))
    imports.finish(client, request_uuid)
    said = work.plan.sentence()
    log.info("import request %s of offering %s: %s", request_uuid, pass_.site.offering.name, said)
    return said


def _steps(pass_: Pass) -> Steps[ImportFacts, PlannedImports]:
    """The loop over the accounts; Waldur is all that changes."""
    return Steps(
        key=KEY,
        observe=lambda: _observe(pass_.site, pass_.rules),
        plan=PlannedImports,
        portions=lambda _: (),
        apply=lambda _: (),
        read_back=lambda _work, _portion, _outcomes: None,
        failed=lambda _work, _portion, _error: None,
        tell=_tell,
        requests=REQUESTS,
    )


def _observe(site: Site, rules: PolicyRules) -> ImportFacts:
    """The cluster's accounts, and what Waldur says of them. Raises SiteAgentError."""
    snapshot = site.backend.observe(Scope(parts=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS})))
    snapshot.require(Part.ACCOUNTS)
    foreign = named_accounts.of_others(
        site.state_dir, site.backend.cluster, site.offering.uuid, site.neighbours
    )
    known = resources.listed(site.client, HAS_ACCOUNT)
    before = imports.offered(site.client)
    named = (*(resource.backend_id for resource in known), *foreign.accounts)
    found = [each for each in importable(site, rules, snapshot, named) if each.account not in before]
    projects = _projects(site, known, {each.project_slug for each in found})
    placed = [each.account for each in found if projects.get(each.project_slug)]
    holders = resources.holders_of_each(site.client, placed, everywhere=True)
    return ImportFacts(snapshot, found, before, projects, _read(holders))


def _tell(work: Work[PlannedImports]) -> None:
    """Offer the accounts. Raises what Waldur says to one of them, before all what may pass."""
    failed = work.send(work.plan.actions)
    if failed:
        raise min(failed.values(), key=lambda error: not error.retryable)


def _projects(site: Site, known: Iterable[Resource], slugs: Set[str]) -> Mapping[str, str]:
    """Uuids of projects by slug: a provider may not see every project, but those of its own resources. Raises
    WaldurError.
    """
    told = {resource.project_slug: resource.project_uuid for resource in known}
    asked = sorted(slugs - told.keys())
    answers = pool.each(asked, lambda slug: imports.project_with_slug(site.client, slug))
    return {**told, **_read(answers)}


def _read(answers: Mapping[str, Answer | WaldurError]) -> dict[str, Answer]:
    """The answers to several questions. Raises WaldurError where one of them has none."""
    found = {}
    for key, answer in answers.items():
        if isinstance(answer, WaldurError):
            raise answer
        found[key] = answer
    return found


def _project_slug(account: Account, prefix: str) -> str:
    """The slug of the project that an account is below; empty where it is below none."""
    parent = account.parent or ""
    return parent.removeprefix(prefix) if parent.startswith(prefix) and parent != prefix else ""
