# SPDX-License-Identifier: MIT
"""The names that people have, and had before Waldur lost them: nobody gets another one, or somebody else's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agent.core.model import OfferingUser
from agent.run.site import Site
from agent.state import given_usernames

# The backend that gives no names: somebody else does, and may take them away again.
UNMANAGED = "base"


class GivenNames:
    """`owners`: who has which name in Waldur, username to the person's uuid; names that were given are added to it."""

    def __init__(self, site: Site, users: Sequence[OfferingUser]) -> None:
        self._site = site
        self.owners = {user.username: user.user_uuid for user in users if user.username}
        self._had: dict[str, str] = {}

    def recall(self) -> None:
        """Read the names that people had. Raises StateError: then nobody gets a name, for it might be another one."""
        if self._site.offering.username_backend != UNMANAGED:
            self._had = given_usernames.of_offering(self._site.state_dir, self._site.offering.uuid)

    def remember(self, users: Iterable[OfferingUser]) -> None:
        """Write down the names as Waldur has them now, where they differ."""
        if self._site.offering.username_backend == UNMANAGED:
            return
        now = {user.user_uuid: user.username for user in users if user.username}
        news = {person: name for person, name in now.items() if self._had.get(person) != name}
        given_usernames.write(self._site.state_dir, self._site.offering.uuid, news)

    @property
    def reserved(self) -> Mapping[str, str]:
        """Return who has, or had, which name: nobody else gets it."""
        return {**{name: person for person, name in self._had.items()}, **self.owners}

    def last_of(self, user: OfferingUser) -> str:
        """Return the name that the person had, empty where there was none, or somebody else has it by now."""
        name = self._had.get(user.user_uuid, "")
        return name if self.owners.get(name, user.user_uuid) == user.user_uuid else ""
