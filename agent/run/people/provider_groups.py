# SPDX-License-Identifier: MIT
"""Provision the groups that Waldur has for projects in the site's directory (`ldap.project_groups`), once in a pass
over everything. What does not agree is told and left as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from agent.core.actions import Action
from agent.core.directory import ProviderGroup, SeenProviderGroups
from agent.core.errors import SiteAgentError
from agent.core.model import OfferingUser, Snapshot
from agent.core.plans import Outcome
from agent.plan import posix_accounts
from agent.plan import provider_groups as planner
from agent.plan.policy.rules import PolicyContext
from agent.plan.provider_groups import DirectoryNames
from agent.run import engine
from agent.run.engine import Portion, Steps, Work
from agent.run.gate import Pass
from agent.run.people import usernames
from agent.run.people.read_back import checked
from agent.run.results import ProvisioningReport
from agent.run.site import Site
from agent.waldur import provider_groups as waldur_groups
from backends.usernames import registry
from backends.usernames.base import AccountDirectory, ProviderGroupDirectory

log = logging.getLogger(__name__)

KEY = "project groups"
# Actions that are written and read back together.
AT_ONCE = 500
LACKING = (
    "this Waldur has no project groups of providers (servers do since 8.1.3): those of the directory are left as they "
    "are"
)


@dataclass(frozen=True)
class GroupFacts:
    """`unclear`: usernames whose entry may be somebody else's, or who may be a member that was renamed. `groups` None:
    the server has none. `is_add_only`: nobody leaves a group, for nobody knows the names of the directory.
    """

    groups: Sequence[ProviderGroup] | None
    seen: SeenProviderGroups
    unclear: frozenset[str] = frozenset()
    is_add_only: bool = False


@dataclass(frozen=True)
class PlannedGroups:
    """`told`: what differs and is left as it is."""

    actions: Sequence[Action]
    told: Sequence[str]
    snapshot: Snapshot
    facts: GroupFacts
    is_whole: bool = True
    context: PolicyContext = field(default_factory=PolicyContext)


def provision(run: Pass, names: DirectoryNames) -> ProvisioningReport:
    """Make the groups as Waldur has them. Raises no SiteAgentError: see `error` and the outcomes."""
    site, outcomes = run.site, list[Outcome]()
    error: SiteAgentError | None = None
    try:
        with _opened(site) as directory:
            if directory is None:
                return ProvisioningReport()
            told = tuple(engine.reconcile(run, _steps(site, directory, names, outcomes)).plan.told)
        if site.cache.logged.get(KEY, ()) != told:
            for words in told:
                log.warning("project groups of offering %s: %s", site.offering.name, words)
            site.cache.logged[KEY] = told
        run.report.notes += [f"project groups: {words}" for words in told]
    except SiteAgentError as raised:
        log.error("project groups of offering %s: %s", site.offering.name, raised)
        error = raised
    return ProvisioningReport(tuple(outcomes), error)


def plan(site: Site, names: DirectoryNames) -> PlannedGroups:
    """Return what `provision` would do now. Changes nothing. Raises SiteAgentError."""
    with _opened(site) as directory:
        if directory is None:
            seen = SeenProviderGroups()
            return PlannedGroups((), (), Snapshot(site.backend.cluster), GroupFacts(None, seen))
        return engine.plan_of(_steps(site, directory, names, []))


def _steps(
    site: Site,
    directory: ProviderGroupDirectory,
    names: DirectoryNames,
    outcomes: list[Outcome],
) -> Steps[GroupFacts, PlannedGroups]:
    def observe() -> GroupFacts:
        groups = waldur_groups.listed(site.client)
        if not groups:
            return GroupFacts(groups, SeenProviderGroups())
        seen = directory.read(groups)
        unclear = _unclear(site, names.users) | planner.possibly_renamed(groups, seen, names.users)
        return GroupFacts(groups, seen, unclear, is_add_only=bool(names.unknown))

    def planned(facts: GroupFacts) -> PlannedGroups:
        rules = replace(directory.rules, is_add_only=directory.rules.is_add_only or facts.is_add_only)
        found = (
            planner.PlannedGroups(told=(LACKING,))
            if facts.groups is None
            else planner.changes(facts.groups, facts.seen, rules, site.offering.uuid, facts.unclear)
        )
        return PlannedGroups(found.actions, found.told, Snapshot(site.backend.cluster), facts)

    def portions(work: Work[PlannedGroups]) -> Iterator[Portion]:
        allowed = work.decision.allowed
        for first in range(0, len(allowed), AT_ONCE):
            yield Portion(tuple(allowed[first : first + AT_ONCE]))

    def read_back(work: Work[PlannedGroups], _portion: Portion, done: Sequence[Outcome]) -> None:
        """Look once more: what would be planned again has not happened."""
        facts = work.plan.facts
        again = planned(replace(facts, seen=directory.read(facts.groups or ())))
        left = set(again.actions)
        outcomes.extend(checked(done, left))

    def failed(_work: object, portion: Portion, error: SiteAgentError) -> None:
        outcomes.extend(Outcome(action, error) for action in portion.actions)

    return Steps(
        key=KEY,
        observe=observe,
        plan=planned,
        portions=portions,
        apply=directory.apply,
        read_back=read_back,
        failed=failed,
        tell=engine.nothing_to_tell,
    )


def _unclear(site: Site, users: Sequence[OfferingUser]) -> frozenset[str]:
    """Return the usernames whose entries do not agree with Waldur, where the directory follows it. Raises
    SiteAgentError.
    """
    if site.offering.username_backend != registry.LDAP:
        return frozenset()
    with usernames.opened(site, {}, None) as backend:
        if not isinstance(backend, AccountDirectory) or backend.account_rules is None:
            return frozenset()
        seen = backend.read_accounts(posix_accounts.with_entries(users))
        return posix_accounts.changes(users, seen, backend.account_rules).unclear


@contextmanager
def _opened(site: Site) -> Iterator[ProviderGroupDirectory | None]:
    """Connect the offering's directory; yield None where it holds no groups of projects."""
    directory = registry.provider_groups(site.offering)
    if directory is None:
        yield None
        return
    try:
        directory.open()
        yield directory
    finally:
        directory.close()
