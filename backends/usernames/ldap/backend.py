# SPDX-License-Identifier: MIT
"""The username backend `ldap`: people are users of the directory, found there or made there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.core.directory_actions import DeactivateUser, DirectoryAction, UpdateProfile
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.model import OfferingUser
from agent.core.plans import Outcome
from backends.usernames.base import UsernameContext
from backends.usernames.choice import FreeNames
from backends.usernames.ldap import welcome
from backends.usernames.ldap.accounts import Accounts, NameGone, NewPerson
from backends.usernames.ldap.directory import Directory
from backends.usernames.ldap.people import People, is_of_the_system
from backends.usernames.ldap.schema import LdapSettings

log = logging.getLogger(__name__)

ROUNDS = 20
SHOWN = 10


class LdapUsernames:
    """One connection from `open` to `close`."""

    def __init__(self, settings: LdapSettings, context: UsernameContext) -> None:
        self._settings = settings
        self._directory = Directory(settings)
        self._people = People(self._directory, settings)
        self._accounts = Accounts(self._directory, self._people, settings)
        self._names = FreeNames(settings.name_format, context)
        self.made: list[str] = []

    def open(self) -> None:
        self._directory.open()

    def close(self) -> None:
        self._directory.close()

    def find(self, user: OfferingUser) -> str:
        """The person's uid. Raises BackendError where the entry is the system's."""
        entry = self._people.find(user)
        if entry is None:
            return ""
        name = entry.first("uid")
        if is_of_the_system(entry):
            raise BackendError(f"LDAP: {name} is an account of the system; it is given to nobody")
        return name

    def require_room(self) -> None:
        """Raises RangeFull where a range is used up."""
        self._accounts.require_room()

    def propose(self, user: OfferingUser) -> str:
        begun = self._accounts.begun(user)
        name = begun.first("cn") if begun else self._free(user)
        self._names.give(user, name)
        return name

    def make(self, user: OfferingUser) -> str:
        """Make the user, under the next name where somebody else was faster."""
        for _ in range(ROUNDS):
            begun = self._accounts.begun(user)
            name = begun.first("cn") if begun else self._free(user)
            if begun and self._people.named([name]):
                return name  # another agent was faster with the same person
            try:
                person = self._accounts.create(user, name, begun)
            except NameGone as error:
                log.info("%s: the next name is tried", error)
                continue
            self._names.give(user, name)
            self.made.append(name)
            log.info("LDAP: user %s made, uidNumber %d", name, person.uid_number)
            self._welcome(user, person)
            return name
        raise BackendUnavailable(f"LDAP: others take the names for user {user.user_uuid} faster than we can")

    def stale_profiles(self, users: Sequence[OfferingUser]) -> Sequence[UpdateProfile]:
        named = {user.username: user for user in users if user.username}
        if not named:
            return ()
        entries = self._people.named(named)
        missing = sorted(named.keys() - entries.keys())
        if missing:
            some = ", ".join(missing[:SHOWN])
            log.warning("%d users of Waldur are not in LDAP: %s", len(missing), some)
        return [
            UpdateProfile(user=name, changes=changes, reason="Waldur knows it better")
            for name, entry in sorted(entries.items())
            if name in named and not is_of_the_system(entry)
            and (changes := self._people.changes(named[name], entry))
        ]  # fmt: skip

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        return [self._applied(action) for action in actions]

    def _free(self, user: OfferingUser) -> str:
        return self._names.first_free(user, is_taken=self._people.is_taken)

    def _welcome(self, user: OfferingUser, person: NewPerson) -> None:
        try:
            welcome.send(self._settings, user, person)
        except BackendError as error:
            log.warning("user %s was made, but got no welcome mail: %s", person.username, error)

    def _applied(self, action: DirectoryAction) -> Outcome:
        step = STEPS.get(type(action))
        if step is None:
            return Outcome(action, BackendError(f"cannot {action.verb} here"))
        try:
            step(self, action)
        except BackendError as error:
            return Outcome(action, error)
        return Outcome(action)

    def _update(self, action: UpdateProfile) -> None:
        self._people.write(action.user, action.changes)

    def _deactivate(self, action: DeactivateUser) -> None:
        if self._settings.remove_user_on_deactivate:
            self._accounts.remove(action.user)


STEPS: Mapping[type[DirectoryAction], Callable[[LdapUsernames, Any], None]] = {
    UpdateProfile: LdapUsernames._update,
    DeactivateUser: LdapUsernames._deactivate,
}
