# SPDX-License-Identifier: MIT
"""Offer accounts of the cluster without a resource in Waldur for import, on request.

An account is offered when no resource of any offering names it, it has no accounts below it, and it is below a
project's account whose slug a project in Waldur has. Nothing is changed on the cluster. In a pause a request waits; in
mode `observe` it is left to whoever serves the offering.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from agent.config.model import Mode
from agent.core.account_names import fold
from agent.core.errors import OfferingPaused, WaldurError, words_for_customers
from agent.core.model import Part, Resource, Snapshot
from agent.core.policy import PolicyRules
from agent.core.waldur_actions import OfferImport
from agent.plan.policy.rules import PolicyContext
from agent.plan.shared_limits import LimitRules, for_waldur
from agent.run import engine, gate
from agent.run.engine import Work
from agent.run.gate import Pass
from agent.run.site import Site
from agent.state import ledger
from agent.waldur import imports, pool, resources
from backends.base import Scope

log = logging.getLogger(__name__)

MODE = Mode.ORDER_PROCESS
KEY = "imports"
HAS_ACCOUNT = (*resources.HANDLED, *resources.IN_PROGRESS)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Importable:
    """An account that no resource names, with its limits in Waldur's units."""

    account: str
    project_slug: str
    limits: Mapping[str, Any]


@dataclass(frozen=True)
class ImportFacts:
    """Accounts that could be offered."""

    snapshot: Snapshot
    found: Sequence[Importable]
    # Accounts that were offered before.
    before: frozenset[str]
    # Uuids by slug, empty for none.
    projects: Mapping[str, str]
    # Resources of all offerings by the account that they name.
    holders: Mapping[str, Sequence[Resource]]


@dataclass(frozen=True)
class PlannedImports:
    """The accounts to be offered."""

    facts: ImportFacts
    context: PolicyContext = field(default_factory=PolicyContext)
    is_whole: bool = True

    @cached_property
    def actions(self) -> Sequence[OfferImport]:
        """Return an offer for each account that has a project, and no resource. Pure."""
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
        """Return a sentence on what was offered."""
        offered, found, before = len(self.actions), len(self.facts.found), len(self.facts.before)
        return f"{offered} accounts offered, {before} were before, {found - offered} belong to no project"


class Imports(engine.Mode[ImportFacts, PlannedImports]):
    """The accounts that an import request asks for."""

    key = KEY

    def observe(self) -> ImportFacts:
        return _observe(self.site, self.run.rules)

    def plan(self, facts: ImportFacts) -> PlannedImports:
        return PlannedImports(facts)

    def tell(self, work: Work[PlannedImports]) -> None:
        if failed := work.send(work.plan.actions):
            # One that another try does not help, before those that may pass.
            raise min(failed.values(), key=lambda error: not error.retryable)


def run(site: Site, request_uuid: str) -> str:
    """Answer one request. Return a sentence on the result. Raises SiteAgentError where another try may help."""
    said = ""
    with engine.passing(site, MODE, is_recorded=False) as pass_:
        pass_.cause = f"import request {request_uuid}"
        said = _answer(pass_, request_uuid)
    error = pass_.report.error
    if error is None:
        return said
    if isinstance(error, WaldurError) and imports.is_gone(error):
        return f"the request has moved on: {error}"
    if not error.retryable and gate.may_report(pass_.rules):
        message = words_for_customers(error, with_details=site.exposes_details)
        imports.fail(site.client, request_uuid, message)
    raise error


def importable(
    site: Site, rules: PolicyRules, snapshot: Snapshot, named: Iterable[str]
) -> Iterator[Importable]:
    """Yield the accounts that may be offered. `named`: accounts that Waldur or another offering names. Pure."""
    taken = {*map(fold, named), site.backend.default_account, *rules.protected_accounts}
    prefix = fold(site.offering.names.project_prefix)
    limits = LimitRules(tuple(site.offering.components.values()))
    for account in sorted(snapshot.accounts.values(), key=lambda a: a.name):
        parent = account.parent or ""
        slug = parent.removeprefix(prefix) if parent.startswith(prefix) else ""
        if slug and account.name not in taken and not snapshot.children_of(account.name):
            yield Importable(account.name, slug, for_waldur({}, account.limits, limits) or {})


def _answer(pass_: Pass, request_uuid: str) -> str:
    """Offer what can be offered, and finish the request. Raises SiteAgentError."""
    client, rules = pass_.site.client, pass_.rules
    state = imports.state(client, request_uuid)
    if state not in (imports.SENT, imports.PROCESSING):
        return f"the request is {state or 'in no known state'}: nothing to do"
    if rules.paused:
        raise OfferingPaused(f"the offering is paused {rules.paused_why}: the import request waits")
    if not gate.may_report(rules):
        log.warning("import request %s is left as it is: mode %s", request_uuid, rules.mode)
        return f"mode {rules.mode}: the request is left as it is"
    if state == imports.SENT:
        imports.begin(client, request_uuid)

    work = engine.reconcile(pass_, Imports(pass_))
    assert work is not None
    imports.finish(client, request_uuid)
    said = work.plan.sentence()
    log.info("import request %s of offering %s: %s", request_uuid, pass_.site.offering.name, said)
    return said


def _observe(site: Site, rules: PolicyRules) -> ImportFacts:
    """Read the cluster's accounts, and what Waldur says of them. Raises SiteAgentError."""
    snapshot = site.backend.observe(Scope(parts=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS})))
    snapshot.require(Part.ACCOUNTS)
    foreign = ledger.of_others(site.state_dir, site.backend.cluster, site.offering.uuid, site.neighbours)
    known = resources.listed(site.client, HAS_ACCOUNT)
    before = imports.offered(site.client)
    named = (*(resource.backend_id for resource in known), *foreign.accounts)
    found = [each for each in importable(site, rules, snapshot, named) if each.account not in before]
    # A provider may not see every project, but those of its own resources.
    # Servers of 2024 report no slugs: then accounts of projects are named by uuid.
    projects = {tail: r.project_uuid for r in known for tail in (r.project_uuid, r.project_slug)}
    unknown = sorted({each.project_slug for each in found} - projects.keys())
    answers = pool.each(unknown, lambda slug: imports.project_with_slug(site.client, slug))
    projects |= _read(answers)
    placed = [each.account for each in found if projects.get(each.project_slug)]
    holders = resources.holders_of_each(site.client, placed, everywhere=True)
    return ImportFacts(snapshot, found, before, projects, _read(holders))


def _read(answers: Mapping[str, Answer | WaldurError]) -> dict[str, Answer]:
    """Return the answers to several requests. Raises WaldurError where one of them failed."""
    found = {}
    for key, answer in answers.items():
        if isinstance(answer, WaldurError):
            raise answer
        found[key] = answer
    return found
