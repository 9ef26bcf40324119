# SPDX-License-Identifier: MIT
"""Provision the groups of allocations in the site's directory (`backend_settings.ldap`).

They follow the accounts and never delay them. Without a directory in the settings nothing is done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent.core.actions import Action
from agent.core.directory import DirectoryGroup
from agent.core.directory_actions import DirectoryAction
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.plan import groups as planner
from agent.plan.groups import DesiredGroups
from agent.plan.policy.rules import PolicyContext
from agent.run.engine import Mode, Portion, Work, checked
from agent.run.gate import Pass
from agent.run.handed_on import AccountsInStep
from agent.run.people.naming import NOT_READ_BACK
from backends.usernames import registry
from backends.usernames.base import GroupDirectory

log = logging.getLogger(__name__)

KEY = "groups"


@dataclass(frozen=True)
class GroupFacts:
    """The desired groups, and those that exist, by name."""

    desired: DesiredGroups
    existing: Mapping[str, DirectoryGroup]
    # As of `AccountsInStep`.
    is_whole: bool = True


@dataclass(frozen=True)
class PlannedGroups:
    """The changes of groups."""

    actions: Sequence[Action]
    snapshot: Snapshot
    facts: GroupFacts
    # They name those that are left as they are.
    obstacles: Sequence[str] = ()
    context: PolicyContext = field(default_factory=PolicyContext)
    is_whole: bool = True


class Groups(Mode[GroupFacts, PlannedGroups]):
    """The groups of the accounts in step."""

    key = KEY
    optional_name = "groups"
    needs = AccountsInStep
    unseen = NOT_READ_BACK

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self._directory: GroupDirectory | None = None

    def observe(self) -> GroupFacts | None:
        """Return None where the offering has no directory, or no account is concerned."""
        in_step = self.run.result(AccountsInStep)
        if in_step is None or not in_step.desired.names():
            return None
        if self._directory is None:
            self._directory = registry.groups(self.site.offering)
            if self._directory is None:
                return None
            self.open.callback(self._directory.close)
            self._directory.open()
        desired = in_step.desired
        # A pass that does not apply lists what would be done together with all that is held.
        is_whole = in_step.is_whole or not self.run.applies
        return GroupFacts(desired, self._directory.read(desired.names()), is_whole)

    def plan(self, facts: GroupFacts) -> PlannedGroups:
        obstacles = {group.obstacle for group in facts.existing.values() if group.obstacle}
        return PlannedGroups(
            planner.changes(facts.desired, facts.existing),
            Snapshot(self.site.backend.cluster),
            facts,
            tuple(sorted(obstacles)),
            is_whole=facts.is_whole,
        )

    def announce(self, work: Work[PlannedGroups]) -> None:
        for note in work.plan.obstacles:
            log.warning("%s: it is left as it is", note)

    def portions(self, work: Work[PlannedGroups]) -> Iterator[Portion]:
        """Yield everything at once: the directory takes what concerns one group together."""
        if allowed := tuple(filter(work.allows, work.decision.allowed)):
            yield Portion(allowed)

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        assert self._directory is not None
        return self._directory.apply(actions)

    def read_back(self, work: Work[PlannedGroups], portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Look once more at the groups that were changed: what would be planned again has not happened."""
        assert self._directory is not None
        changed = {outcome.action.for_account for outcome in outcomes if outcome.done}
        desired = work.plan.facts.desired
        left = planner.changes(desired, self._directory.read(sorted(changed))) if changed else ()
        self.outcomes += checked(outcomes, set(left), self.unseen)
