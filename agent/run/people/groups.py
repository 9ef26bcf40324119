# SPDX-License-Identifier: MIT
"""Provision the groups of allocations in the site's directory (`backend_settings.ldap`).

They follow the accounts and never delay them. Without a directory in the settings nothing is done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from agent.core.actions import Action
from agent.core.directory import DirectoryGroup
from agent.core.errors import SiteAgentError
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.plan import groups as planner
from agent.plan.groups import DesiredGroups
from agent.plan.policy.rules import PolicyContext
from agent.run import engine
from agent.run.engine import Portion, Steps, Work
from agent.run.gate import Pass
from agent.run.people.read_back import checked
from agent.run.results import ProvisioningReport
from agent.run.site import Site
from backends.usernames import registry
from backends.usernames.base import GroupDirectory

log = logging.getLogger(__name__)

KEY = "groups"


@dataclass(frozen=True)
class GroupFacts:
    """The desired groups, and those that exist, by name."""

    desired: DesiredGroups
    existing: Mapping[str, DirectoryGroup]


@dataclass(frozen=True)
class PlannedGroups:
    """The changes of groups; `notes` name those that are left as they are."""

    actions: Sequence[Action]
    snapshot: Snapshot
    notes: Sequence[str] = ()
    context: PolicyContext = field(default_factory=PolicyContext)
    is_whole: bool = True


def provision(run: Pass, desired: DesiredGroups, *, is_whole: bool) -> ProvisioningReport:
    """Make the groups as desired. Raises no SiteAgentError: see `error` and the outcomes."""
    outcomes: list[Outcome] = []
    error: SiteAgentError | None = None
    try:
        with _opened(run.site, desired) as directory:
            if directory is not None:
                engine.reconcile(run, _steps(run.site, directory, desired, outcomes, is_whole=is_whole))
    except SiteAgentError as raised:
        log.error("groups of offering %s: %s", run.site.offering.name, raised)
        error = raised
    return ProvisioningReport(tuple(outcomes), error)


def plan(site: Site, desired: DesiredGroups) -> PlannedGroups:
    """Return what `provision` would do now. Changes nothing. Raises SiteAgentError."""
    with _opened(site, desired) as directory:
        if directory is None:
            return PlannedGroups((), Snapshot(site.backend.cluster))
        return engine.plan_of(_steps(site, directory, desired, [], is_whole=True))


def _steps(
    site: Site, directory: GroupDirectory, desired: DesiredGroups, outcomes: list[Outcome], *, is_whole: bool
) -> Steps[GroupFacts, PlannedGroups]:
    def planned(facts: GroupFacts) -> PlannedGroups:
        obstacles = {group.obstacle for group in facts.existing.values() if group.obstacle}
        return PlannedGroups(
            planner.changes(facts.desired, facts.existing),
            Snapshot(site.backend.cluster),
            tuple(sorted(obstacles)),
            is_whole=is_whole,
        )

    def announce(work: Work[PlannedGroups]) -> None:
        for note in work.plan.notes:
            log.warning("%s: it is left as it is", note)

    def portions(work: Work[PlannedGroups]) -> Iterator[Portion]:
        if work.decision.allowed:
            yield Portion(work.decision.allowed)

    def read_back(_work: object, _portion: Portion, done: Sequence[Outcome]) -> None:
        """Look once more at the groups that were changed: what would be planned again has not happened."""
        changed = {outcome.action.for_account for outcome in done if outcome.done}
        left = planner.changes(desired, directory.read(sorted(changed))) if changed else ()
        outcomes.extend(checked(done, set(left)))

    def failed(_work: object, portion: Portion, error: SiteAgentError) -> None:
        outcomes.extend(Outcome(action, error) for action in portion.actions)

    return Steps(
        key=KEY,
        observe=lambda: GroupFacts(desired, directory.read(desired.names())),
        plan=planned,
        announce=announce,
        portions=portions,
        apply=directory.apply,
        read_back=read_back,
        failed=failed,
        tell=engine.nothing_to_tell,
    )


@contextmanager
def _opened(site: Site, desired: DesiredGroups) -> Iterator[GroupDirectory | None]:
    """Connect the offering's directory; yield None where it has none or no account is concerned."""
    groups = registry.groups(site.offering) if desired.names() else None
    if groups is None:
        yield None
        return
    try:
        groups.open()
        yield groups
    finally:
        groups.close()
