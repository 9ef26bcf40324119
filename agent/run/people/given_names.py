# SPDX-License-Identifier: MIT
"""The names that people have, and had before Waldur lost them: nobody gets another one, or somebody else's."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from agent.core.model import OfferingFacts, OfferingUser
from agent.plan import usernames as planner
from agent.run.gate import Pass
from agent.run.site import Site
from agent.state import given_usernames

# The backend that gives no names: somebody else does, and may take them away again.
UNMANAGED = "base"
# Names that one sentence has.
SHOWN = 5

log = logging.getLogger(__name__)


class GivenNames:
    """`owners`: who has which name in Waldur, username to the person's uuid; names that were given are added to it."""

    def __init__(self, site: Site, users: Sequence[OfferingUser]) -> None:
        self._site = site
        self.owners = {user.username: user.user_uuid for user in users if user.username}
        self._had: dict[str, str] = {}
        self._beside: dict[str, str] = {}

    def recall(self) -> None:
        """Read the names that people had, here and at other offerings with members on the same cluster. Raises
        StateError: then nobody gets a name, for it might be another one.
        """
        if self._site.offering.username_backend != UNMANAGED:
            self._had = given_usernames.of_offering(self._site.state_dir, self._site.offering.uuid)
            self._beside = given_usernames.of_offerings(self._site.state_dir, self._site.neighbours)

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
        """Return who has, or had, which name, here or at an offering beside: nobody else gets it."""
        return {**self._beside, **{name: person for person, name in self._had.items()}, **self.owners}

    def tell_shared(self, run: Pass) -> None:
        """Tell of usernames that one person has here and another one at an offering beside."""
        found = sorted(name for name, who in self.owners.items() if self._beside.get(name, who) != who)
        logged, key = run.site.cache.logged, "usernames of two people"
        if not found and not logged.get(key):
            return
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        words = (
            f"two people at two offerings on this cluster have one username: {', '.join(found[:SHOWN])}{more}. Each "
            "can use what the other one has: give one of them another name in Waldur"
        )
        if found and logged.get(key) != tuple(found):
            log.error("usernames of offering %s: %s", run.site.offering.name, words)
        logged[key] = tuple(found)
        run.report.notes += [words] if found else []

    def had(self, user: OfferingUser) -> str:
        """Return the name that the person had here, whoever has it by now; empty where there was none."""
        return self._had.get(user.user_uuid, "")

    def last_of(self, user: OfferingUser) -> str:
        """Return the name that the person had, empty where there was none, or somebody else has it by now."""
        name = self._had.get(user.user_uuid, "")
        return name if self.owners.get(name, user.user_uuid) == user.user_uuid else ""
