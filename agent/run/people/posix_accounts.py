# SPDX-License-Identifier: MIT
"""Provision people in a directory that follows Waldur (`account_source: waldur`): Waldur's names, numbers, homes and
shells. What does not agree is logged and left as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.core.actions import Action
from agent.core.directory import AccountRules, DirectoryPeople, OnMismatch
from agent.core.directory_actions import DirectoryAction
from agent.core.errors import ConfigError
from agent.core.model import OfferingUser, Snapshot
from agent.core.plans import Outcome
from agent.plan import posix_accounts as planner
from agent.plan.policy.rules import PolicyContext
from agent.plan.posix_accounts import OldName
from agent.plan.usernames import leaves_names_to_us
from agent.run.engine import Work
from agent.run.gate import Pass
from agent.run.people.naming import NOT_READ_BACK, Naming
from backends.usernames.base import AccountDirectory

log = logging.getLogger(__name__)

KEY = "directory accounts"


@dataclass(frozen=True)
class PlannedAccounts:
    """The changes of users in the directory."""

    actions: Sequence[Action]
    # What differs and is left as it is.
    differences: Sequence[str]
    snapshot: Snapshot
    # As of `PlannedPeople`.
    old_names: Mapping[str, OldName] = field(default_factory=dict)
    is_whole: bool = True
    context: PolicyContext = field(default_factory=PolicyContext)


class DirectoryAccounts(Naming[DirectoryPeople, PlannedAccounts]):
    """The people of a directory that follows Waldur."""

    key = KEY
    at_once = 50
    unseen = NOT_READ_BACK

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self._directory: AccountDirectory | None = None

    @property
    def _rules(self) -> AccountRules:
        rules = self._directory.account_rules if self._directory is not None else None
        assert rules is not None
        return rules

    def observe(self) -> DirectoryPeople:
        """Read the entries of all. Raises ConfigError where Waldur does not make the usernames."""
        if self._directory is None:
            backend = self.backend()
            assert isinstance(backend, AccountDirectory)
            self._directory = backend
            if leaves_names_to_us(self.waldur.offering):
                raise ConfigError(
                    "account_source is `waldur`, and the offering's username_generation_policy `service_provider`: "
                    "then neither Waldur nor the agent makes the names. Choose another policy in Waldur, or "
                    "account_source `ldap`"
                )
        return self._directory.read_accounts(planner.with_entries(self.waldur.users))

    def plan(self, facts: DirectoryPeople) -> PlannedAccounts:
        found = planner.changes(self.waldur.users, facts, self._rules)
        # The cluster, by which the gate measures.
        seen = self.waldur.cluster or Snapshot(self.site.backend.cluster)
        return PlannedAccounts(found.actions, found.problems, seen, found.old_names)

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        assert self._directory is not None
        return self._directory.apply(actions)

    def tell(self, work: Work[PlannedAccounts]) -> None:
        """Log and report what differs and is left as it is; that fails the pass where the site wants that."""
        differences, report = work.plan.differences, self.run.report
        for words in self.site.cache.said.news(KEY, *differences):
            log.error("directory of offering %s: %s", self.site.offering.name, words)
        problems = [f"directory: {words}" for words in differences]
        if self._rules.on_mismatch is OnMismatch.FAIL:
            report.problems += problems
        else:
            report.notes += problems

    def users_after(self, plan: PlannedAccounts, happened: Iterable[Action]) -> Sequence[OfferingUser]:
        """Return the users with the names that the directory has then."""
        return planner.as_in_directory(self.users, plan.old_names, happened)
