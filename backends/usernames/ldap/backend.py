# SPDX-License-Identifier: MIT
"""The username backend `ldap`: people are users of the directory, found there or made there."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent.core.directory import AccountRules, DirectoryPeople
from agent.core.directory_actions import (
    AdoptNumbers,
    CreateUser,
    DeactivateUser,
    DirectoryAction,
    EnableUser,
    RenameUser,
    UpdateProfile,
)
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.model import OfferingUser
from agent.core.plans import Outcome
from backends.usernames.base import UsernameContext
from backends.usernames.choice import FreeNames
from backends.usernames.ldap import welcome
from backends.usernames.ldap.directory import Directory
from backends.usernames.ldap.followed import FollowedPeople
from backends.usernames.ldap.groups import GroupWriter
from backends.usernames.ldap.schema import LdapSettings, OnDeparture
from backends.usernames.ldap.user_reader import DISABLED, UserReader, is_of_the_system
from backends.usernames.ldap.user_writer import NameTaken, NewUser, UserWriter

log = logging.getLogger(__name__)

ROUNDS = 20
LISTED = 10


class LdapUsernames:
    """Finds, makes and updates people over one connection, from `open` to `close`."""

    def __init__(self, settings: LdapSettings, context: UsernameContext) -> None:
        self._settings = settings
        self._directory = Directory(settings)
        self._reader = UserReader(self._directory, settings)
        groups = GroupWriter(self._directory, settings)
        self._writer = UserWriter(self._directory, self._reader, groups, settings)
        self._followed = FollowedPeople(self._directory, self._reader, groups, settings)
        self._people: dict[str, OfferingUser] = {}
        self._names = FreeNames(settings.name_format, context)
        self.made: list[str] = []

    def open(self) -> None:
        self._directory.open()

    def close(self) -> None:
        self._directory.close()

    def find(self, user: OfferingUser) -> str:
        """Return the person's uid, empty where there is none. Raises BackendError where the entry is the system's."""
        entry = self._reader.find(user)
        if entry is None:
            return ""
        name = entry.first("uid")
        if is_of_the_system(entry):
            raise BackendError(f"LDAP: {name} is an account of the system; it is never given to a person")
        return name

    def require_room(self) -> None:
        """Raise RangeFull where a range is used up."""
        self._writer.require_room()

    def propose(self, user: OfferingUser) -> str:
        begun = self._writer.begun_group(user)
        name = begun.first("cn") if begun else self._free(user)
        self._names.give(user, name)
        return name

    def make(self, user: OfferingUser) -> str:
        """Make the user, under the next name where another process took this one."""
        for _ in range(ROUNDS):
            begun = self._writer.begun_group(user)
            if begun:
                if faster := self._writer.made_by_others(user):
                    return faster
                begun = self._writer.begun_group(user)
            name = begun.first("cn") if begun else self._free(user)
            try:
                made = self._writer.create(user, name, begun)
            except NameTaken as error:
                log.info("%s: the next name is tried", error)
                continue
            self._names.give(user, name)
            self.made.append(name)
            log.info("LDAP: user %s made, uidNumber %d", name, made.uid_number)
            self._send_mail(user, made)
            return name
        raise BackendUnavailable(
            f"LDAP: other agents take the names for user {user.user_uuid} faster than we can"
        )

    def stale_profiles(self, users: Sequence[OfferingUser]) -> Sequence[DirectoryAction]:
        named = {user.username: user for user in users if user.username}
        if not named:
            return ()
        entries = self._reader.named(named)
        missing = sorted(named.keys() - entries.keys())
        if missing:
            some = ", ".join(missing[:LISTED])
            log.warning("%d users of Waldur are not in LDAP: %s", len(missing), some)
        parked = [
            EnableUser(user=name, reason="the person has come back")
            for name, entry in sorted(entries.items())
            if name in named and DISABLED in entry.all("description")
        ]
        return parked + [
            UpdateProfile(user=name, changes=changes, reason="Waldur knows it better")
            for name, entry in sorted(entries.items())
            if name in named and not is_of_the_system(entry)
            and (changes := self._reader.changes(named[name], entry))
        ]  # fmt: skip

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        outcomes = []
        for action in actions:
            error: BackendError | None = None
            try:
                self._carry_out(action)
            except BackendError as raised:
                error = raised
            outcomes.append(Outcome(action, error))
        return outcomes

    @property
    def account_rules(self) -> AccountRules | None:
        return self._settings.account_rules

    def read_accounts(self, users: Sequence[OfferingUser]) -> DirectoryPeople:
        self._people = {user.username: user for user in users}
        return self._followed.read(users)

    def _carry_out(self, action: DirectoryAction) -> None:
        match action:
            case CreateUser():
                user = self._people[action.user]
                self._send_mail(user, self._writer.create_as(user, action.uid, action.gid))
            case RenameUser():
                self._followed.rename(action)
            case AdoptNumbers():
                self._followed.adopt(action)
            case EnableUser():
                self._followed.enable(action)
            case UpdateProfile():
                self._reader.write(action.user, action.changes)
            case DeactivateUser():
                if self._settings.remove_user_on_deactivate:
                    is_kept = self._settings.on_departure is OnDeparture.DISABLE
                    (self._followed.disable if is_kept else self._writer.remove)(action)
            case _:
                raise BackendError(f"cannot {action.verb} here")

    def _send_mail(self, user: OfferingUser, made: NewUser) -> None:
        try:
            welcome.send(self._settings, user, made)
        except BackendError as error:
            log.warning("user %s was made, but got no welcome mail: %s", made.username, error)

    def _free(self, user: OfferingUser) -> str:
        return self._names.first_free(user, is_taken=self._reader.is_taken)
