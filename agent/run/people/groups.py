# SPDX-License-Identifier: MIT
"""The groups of allocations in the site's directory (`backend_settings.ldap`): read, planned, changed.

Called by the membership pass with the members that the accounts shall have; the groups follow the accounts and never
hold them up. Without a directory in the settings nothing happens.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agent.core.directory_actions import DirectoryAction
from agent.core.errors import SiteAgentError
from agent.core.plans import Outcome
from agent.plan import groups as planner
from agent.plan.groups import GroupWishes
from agent.run.site import Site
from backends.usernames import registry
from backends.usernames.base import GroupDirectory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupReport:
    """What was done. `notes` tell of groups that are left alone; `error` is why nothing could be looked at."""

    outcomes: tuple[Outcome, ...] = ()
    notes: tuple[str, ...] = ()
    error: SiteAgentError | None = None

    @property
    def retryable_error(self) -> SiteAgentError | None:
        """The first reason to come back soon."""
        errors = (self.error, *(outcome.error for outcome in self.outcomes))
        return next((error for error in errors if error is not None and error.retryable), None)


def settle(site: Site, wishes: GroupWishes) -> GroupReport:
    """Make the groups as wished. Raises nothing of ours: see `error` and the outcomes."""
    try:
        with _opened(site, wishes) as groups:
            if groups is None:
                return GroupReport()
            actions, notes = _planned(groups, wishes)
            outcomes = tuple(groups.apply(actions)) if actions else ()
    except SiteAgentError as error:
        log.error("groups of offering %s: %s", site.offering.name, error)
        return GroupReport(error=error)
    for note in notes:
        log.warning("%s: it is left as it is", note)
    for outcome in outcomes:
        if outcome.error is None:
            log.info("%s", outcome.action.render())
        else:
            log.warning("%s failed: %s", outcome.action.render(), outcome.error)
    return GroupReport(outcomes, notes)


def plan(site: Site, wishes: GroupWishes) -> list[DirectoryAction]:
    """What `settle` would do now. Changes nothing. Raises SiteAgentError."""
    with _opened(site, wishes) as groups:
        return _planned(groups, wishes)[0] if groups is not None else []


def _planned(groups: GroupDirectory, wishes: GroupWishes) -> tuple[list[DirectoryAction], tuple[str, ...]]:
    standing = groups.read(wishes.names())
    notes = tuple(sorted({group.obstacle for group in standing.values() if group.obstacle}))
    return planner.changes(wishes, standing), notes


@contextmanager
def _opened(site: Site, wishes: GroupWishes) -> Iterator[GroupDirectory | None]:
    """The offering's directory, connected; None where it has none or no account is spoken of."""
    groups = registry.groups(site.offering) if wishes.names() else None
    if groups is None:
        yield None
        return
    try:
        groups.open()
        yield groups
    finally:
        groups.close()
