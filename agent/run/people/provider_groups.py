# SPDX-License-Identifier: MIT
"""Provision the groups that Waldur has for projects in the site's directory (`ldap.project_groups`), once in a pass
over everything. What does not agree is logged and left as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agent.core.actions import Action
from agent.core.directory import ProviderGroup, SeenProviderGroups
from agent.core.directory_actions import DirectoryAction
from agent.core.model import OfferingUser, Snapshot
from agent.core.plans import Outcome
from agent.plan import posix_accounts
from agent.plan import provider_groups as planner
from agent.plan.policy.rules import PolicyContext
from agent.plan.provider_groups import DirectoryNames
from agent.run.engine import Mode, Portion, Work, checked
from agent.run.gate import Pass
from agent.run.people.naming import NOT_READ_BACK, opened
from agent.run.site import Site
from agent.waldur import provider_groups as waldur_groups
from backends.usernames import registry
from backends.usernames.base import AccountDirectory, ProviderGroupDirectory

log = logging.getLogger(__name__)

KEY = "project groups"
LACKING = (
    "this Waldur has no project groups of providers (servers do since 8.1.3): those of the directory are left as they "
    "are"
)


@dataclass(frozen=True)
class GroupFacts:
    """What was read for the groups of the provider's projects."""

    # None: the server has none.
    groups: Sequence[ProviderGroup] | None
    seen: SeenProviderGroups
    # Usernames whose entry may be another person's, or who may be a member that was renamed.
    unclear: frozenset[str] = frozenset()
    # No member is removed, for the names of the directory are unknown.
    is_add_only: bool = False


@dataclass(frozen=True)
class PlannedGroups:
    """The changes of such groups."""

    actions: Sequence[Action]
    # What differs and is left as it is.
    differences: Sequence[str]
    snapshot: Snapshot
    facts: GroupFacts
    is_whole: bool = True
    context: PolicyContext = field(default_factory=PolicyContext)


class ProjectGroups(Mode[GroupFacts, PlannedGroups]):
    """The groups that Waldur has for projects."""

    key = KEY
    optional_name = "project groups"
    needs = DirectoryNames
    unseen = NOT_READ_BACK

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self._directory: ProviderGroupDirectory | None = None

    def observe(self) -> GroupFacts | None:
        """Return None where no earlier mode knows all names, or the directory holds no groups of projects."""
        names = self.run.result(DirectoryNames)
        self._directory = registry.provider_groups(self.site.offering) if names is not None else None
        if names is None or self._directory is None:
            return None
        self.open.callback(self._directory.close)
        self._directory.open()
        groups = waldur_groups.listed(self.site.client)
        if not groups:
            return GroupFacts(groups, SeenProviderGroups())
        seen = self._directory.read(groups)
        unclear = _unclear(self.site, names.users) | planner.possibly_renamed(groups, seen, names.users)
        return GroupFacts(groups, seen, unclear, is_add_only=bool(names.unknown))

    def plan(self, facts: GroupFacts) -> PlannedGroups:
        assert self._directory is not None
        rules = self._directory.rules
        rules = replace(rules, is_add_only=rules.is_add_only or facts.is_add_only)
        found = (
            planner.PlannedGroups(problems=(LACKING,))
            if facts.groups is None
            else planner.changes(facts.groups, facts.seen, rules, self.site.offering.uuid, facts.unclear)
        )
        return PlannedGroups(found.actions, found.problems, Snapshot(self.site.backend.cluster), facts)

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        assert self._directory is not None
        return self._directory.apply(actions)

    def read_back(self, work: Work[PlannedGroups], portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Look at the directory once more, and not at Waldur: what would be planned again has not happened."""
        assert self._directory is not None
        facts = work.plan.facts
        again = self.plan(replace(facts, seen=self._directory.read(facts.groups or ())))
        self.outcomes += checked(outcomes, set(again.actions), self.unseen)

    def tell(self, work: Work[PlannedGroups]) -> None:
        """Log what is left as it is, once."""
        for words in self.site.cache.said.news(KEY, *work.plan.differences):
            log.warning("project groups of offering %s: %s", self.site.offering.name, words)
        self.run.report.notes += self.notes(work.plan)

    def notes(self, plan: PlannedGroups) -> Sequence[str]:
        return [f"project groups: {words}" for words in plan.differences]


def _unclear(site: Site, users: Sequence[OfferingUser]) -> frozenset[str]:
    """Return the usernames whose entries do not agree with Waldur, where the directory follows it. Raises
    SiteAgentError.
    """
    if site.offering.username_backend != registry.LDAP:
        return frozenset()
    with opened(site, {}, None) as backend:
        if not isinstance(backend, AccountDirectory) or backend.account_rules is None:
            return frozenset()
        seen = backend.read_accounts(posix_accounts.with_entries(users))
        return posix_accounts.changes(users, seen, backend.account_rules).unclear
