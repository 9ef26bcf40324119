# SPDX-License-Identifier: MIT
"""What both modes that name people share (`usernames`, `posix_accounts`): the offering's username backend, opened once,
the names that were given, and what they leave for the members.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from agent.core.actions import Action
from agent.core.errors import SiteAgentError
from agent.core.model import OfferingFacts, OfferingUser, Part, Snapshot
from agent.plan.usernames import leaves_names_to_us
from agent.run import waldur_facts
from agent.run.engine import Mode, Work
from agent.run.gate import Pass, Planned
from agent.run.handed_on import NamedPeople
from agent.run.people.given_names import GivenNames
from agent.run.site import Site
from backends.base import Scope
from backends.usernames import registry
from backends.usernames.base import UsernameBackend, UsernameContext

log = logging.getLogger(__name__)

# Why nobody leaves an account, where the names of the directory are not known.
AWAY = "who has an old name in the directory still is not known in this pass: the next pass tries again"
STUCK = "who was renamed in Waldur may have the old name in the directory still: nobody knows until this is set right"
# Of a change of a directory that is read once more.
NOT_SHOWN = "the directory does not show it"

Facts = TypeVar("Facts")
Plan = TypeVar("Plan", bound=Planned)


class Naming(Mode[Facts, Plan]):
    """Names for the people of an offering. `users`: as they are now; `error`: what stopped the work on more than one of
    them. Raises SiteAgentError where Waldur or the cluster cannot be read: then there is nobody to be named.
    """

    beside = "usernames"

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self.waldur = waldur_facts.read(run)
        self.users: Sequence[OfferingUser] = tuple(self.waldur.users)
        self.error: SiteAgentError | None = None
        self.names = GivenNames(self.site, self.users)

    def backend(self) -> UsernameBackend | None:
        """Return the offering's username backend, open as long as the mode is at work; None where it is not installed.
        Raises SiteAgentError.
        """
        self.names.recall()
        if self.run.applies:
            self.names.tell_shared(self.run)
        return self.open.enter_context(opened(self.site, self.names.reserved, self.waldur.cluster))

    def users_after(self, plan: Plan, happened: Iterable[Action]) -> Sequence[OfferingUser]:
        """Return the users as they are after what of a plan has happened."""
        raise NotImplementedError

    def leave(self, work: Work[Plan]) -> None:
        done = (
            [outcome.action for outcome in self.outcomes if outcome.done] if self.run.applies else work.done
        )
        self.users = self.users_after(work.plan, done)
        self.run.leave(NamedPeople(self.users))

    def conclude(self, error: SiteAgentError | None) -> None:
        """Remember the names, and say why nobody leaves an account, where nobody knows the names of the directory."""
        if error is None:
            # Logged already.
            self.add_to_report(self.error)
        else:
            self.error = error
            super().conclude(error)
            self.foresee(error)
            named = self.run.result(NamedPeople)
            if named is not None and named.unknown:
                self.run.report.notes.append(f"nobody leaves an account in this pass: {named.unknown}")
        self.names.remember(self.users, self.waldur.offering)

    def foresee(self, error: SiteAgentError) -> None:
        self.run.leave(NamedPeople(self.users, names_unknown(self.site, self.waldur.offering, error)))


def names_unknown(site: Site, facts: OfferingFacts, error: SiteAgentError) -> str:
    """Return why nobody knows the names that a directory which follows Waldur has, where it cannot be used for an
    `error`; empty where there is no such directory.

    Where Waldur leaves the names to the provider, the directory follows nobody and says nothing about them: they are
    what whoever writes them into Waldur says.
    """
    if not registry.follows_waldur(site.offering) or leaves_names_to_us(facts):
        return ""
    return f"{AWAY} ({error})" if error.retryable else f"{STUCK}: {error}"


@contextmanager
def opened(
    site: Site, owners: Mapping[str, str], snapshot: Snapshot | None
) -> Iterator[UsernameBackend | None]:
    """Connect the offering's username backend; yield None where it is not installed, and no directory has to follow
    Waldur by it. Raises SiteAgentError.

    `owners`: who has, or had, which name. `snapshot`: the cluster as it was just read; without its members the cluster
    is read, and only where a name is made.
    """
    names = partial(_names_on_cluster, site, snapshot)
    context = UsernameContext(site.offering.uuid, site.state_dir, owners, names)
    try:
        backend = registry.connect(site.offering, context)
    except registry.UsernameBackendMissing as error:
        if registry.follows_waldur(site.offering):
            raise
        log.warning("%s. No usernames are made for offering %s", error, site.offering.name)
        yield None
        return
    try:
        backend.open()
        yield backend
    finally:
        backend.close()


def _names_on_cluster(site: Site, snapshot: Snapshot | None) -> frozenset[str]:
    seen = snapshot
    if seen is None or Part.ASSOCIATIONS not in seen.complete:
        seen = site.backend.observe(Scope(parts=frozenset({Part.ASSOCIATIONS})))
    seen.require(Part.ASSOCIATIONS)
    return frozenset(user for _, user in seen.members())
