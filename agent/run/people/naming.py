# SPDX-License-Identifier: MIT
"""What both modes that name people share (`usernames`, `posix_accounts`): the offering's username backend, opened once,
the names that people have, and had before Waldur lost them, and what they leave for the members.
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
from agent.core.printable import shortlist
from agent.plan import usernames as planner
from agent.plan.usernames import leaves_names_to_us
from agent.run import waldur_facts
from agent.run.engine import Mode, Work
from agent.run.gate import Pass, Planned
from agent.run.handed_on import NamedPeople
from agent.run.site import Site
from agent.state import given_usernames
from backends.base import Scope
from backends.plugins import PluginMissing
from backends.usernames import registry
from backends.usernames.base import UsernameBackend, UsernameContext

log = logging.getLogger(__name__)

# Why no member is removed from an account, where the names of the directory are not known.
AWAY = "who has an old name in the directory still is not known in this pass: the next pass tries again"
STUCK = (
    "who was renamed in Waldur may have the old name in the directory still: unknown until this is set right"
)
# Of a change that is not in the directory when it is read back.
NOT_READ_BACK = "the change is not in the directory"
# The backend that gives no names: another system gives them, and may take them away again.
UNMANAGED = "base"
# Names that one sentence has.
NAMED_AT_MOST = 5

Facts = TypeVar("Facts")
Plan = TypeVar("Plan", bound=Planned)


class GivenNames:
    """Keeps that each person gets the same name as before, and never that of another person."""

    def __init__(self, site: Site, users: Sequence[OfferingUser]) -> None:
        self._site = site
        # Who has which name in Waldur, username to the person's uuid; names that were given are added.
        self.owners = {user.username: user.user_uuid for user in users if user.username}
        self._had: dict[str, str] = {}
        self._neighbours_names: dict[str, str] = {}

    def recall(self) -> None:
        """Read the names that people had, here and at other offerings with members on the same cluster. Raises
        StateError: then no name is given, for it might be another one.
        """
        if self._site.offering.username_backend != UNMANAGED:
            self._had = given_usernames.of_offering(self._site.state_dir, self._site.offering.uuid)
            self._neighbours_names = given_usernames.of_offerings(self._site.state_dir, self._site.neighbours)

    def remember(self, users: Iterable[OfferingUser], facts: OfferingFacts) -> None:
        """Write down the names as Waldur has them now, where they differ; not those that Waldur makes itself under
        another policy of the offering, and that go with it.
        """
        if self._site.offering.username_backend == UNMANAGED or not planner.leaves_names_to_us(facts):
            return
        now = {user.user_uuid: user.username for user in users if user.username}
        news = {person: name for person, name in now.items() if self._had.get(person) != name}
        given_usernames.write(self._site.state_dir, self._site.offering.uuid, news)

    @property
    def reserved(self) -> Mapping[str, str]:
        """Return who has, or had, which name, here or at an offering on the same cluster: no other person gets it."""
        return {
            **self._neighbours_names,
            **{name: person for person, name in self._had.items()},
            **self.owners,
        }

    def report_shared(self, run: Pass) -> None:
        """Log and report usernames that one person has here and another one at an offering on the same cluster."""
        found = sorted(
            name for name, who in self.owners.items() if self._neighbours_names.get(name, who) != who
        )
        is_news = run.site.cache.said.news("usernames of two people", *found)
        if not found:
            return
        words = (
            f"two people at two offerings on this cluster have one username: {shortlist(found, NAMED_AT_MOST)}. Each "
            "can use what the other one has: give one of them another name in Waldur"
        )
        if is_news:
            log.error("usernames of offering %s: %s", run.site.offering.name, words)
        run.report.notes.append(words)

    def had(self, user: OfferingUser) -> str:
        """Return the name that the person had here, whoever has it by now; empty where there was none."""
        return self._had.get(user.user_uuid, "")

    def last_of(self, user: OfferingUser) -> str:
        """Return the name that the person had, empty where there was none, or another person has it by now."""
        name = self._had.get(user.user_uuid, "")
        return name if self.owners.get(name, user.user_uuid) == user.user_uuid else ""


class Naming(Mode[Facts, Plan]):
    """Names for the people of an offering. Raises SiteAgentError where Waldur or the cluster cannot be read: then no
    person can be named.
    """

    optional_name = "usernames"

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self.waldur = waldur_facts.read(run)
        # As they are now.
        self.users: Sequence[OfferingUser] = tuple(self.waldur.users)
        # What stopped the work on more than one of them.
        self.error: SiteAgentError | None = None
        self.names = GivenNames(self.site, self.users)

    def backend(self) -> UsernameBackend | None:
        """Return the offering's username backend, open as long as the mode is at work; None where it is not installed.
        Raises SiteAgentError.
        """
        self.names.recall()
        if self.run.applies:
            self.names.report_shared(self.run)
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
        """Remember the names, and report why no member is removed, where the names of the directory are unknown."""
        if error is None:
            # Logged already.
            self.add_to_report(self.error)
        else:
            self.error = error
            super().conclude(error)
            self.leave_unplanned(error)
            named = self.run.result(NamedPeople)
            if named is not None and named.unknown:
                self.run.report.notes.append(
                    f"no member is removed from an account in this pass: {named.unknown}"
                )
        self.names.remember(self.users, self.waldur.offering)

    def leave_unplanned(self, error: SiteAgentError) -> None:
        self.run.leave(NamedPeople(self.users, names_unknown(self.site, self.waldur.offering, error)))


def names_unknown(site: Site, facts: OfferingFacts, error: SiteAgentError) -> str:
    """Return why the names in a directory that follows Waldur are unknown, where it cannot be used for an `error`;
    empty where there is no such directory.

    Where Waldur leaves the names to the provider, the directory does not follow Waldur and does not decide on them:
    they are what whoever writes them into Waldur says.
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
    except PluginMissing as error:
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
