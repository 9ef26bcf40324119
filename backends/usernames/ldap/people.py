# SPDX-License-Identifier: MIT
"""People in the directory as they are: found again, looked at, brought up to date."""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.errors import BackendError
from agent.core.model import OfferingUser
from backends.usernames.ldap.directory import REPLACE, Directory, Entry, any_of, equals
from backends.usernames.ldap.schema import LdapSettings
from backends.usernames.nss import FIRST_PERSON

GROUP_ATTRIBUTES = ("cn", "gidNumber", "memberUid", "description")


class People:
    def __init__(self, directory: Directory, settings: LdapSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._login = settings.waldur_username_attribute

    def find(self, user: OfferingUser) -> Entry | None:
        """The person's entry: by the login that it carries, by the group that we made, by e-mail, by the login as uid.

        Raises BackendError where several people have this e-mail.
        """
        if self._login and user.waldur_username:
            mine = self._users(equals(self._login, user.waldur_username))
            if mine:
                return mine[0]
        made = self.named(group.first("cn") for group in self.groups_made_for(user))
        if made:
            return next(iter(made.values()))
        return self._by_mail(user.email) or self._by_login(user)

    def named(self, usernames: Iterable[str]) -> dict[str, Entry]:
        """Entries by username, read together."""
        return {
            entry.first("uid"): entry
            for clauses in any_of("uid", usernames)
            for entry in self._users(clauses)
        }

    def is_taken(self, name: str) -> bool:
        """Is there a user, or a group, of this name anywhere in the directory?"""
        clauses = f"(|{equals('uid', name)}(&(objectClass=posixGroup){equals('cn', name)}))"
        return bool(
            self._directory.search(self._settings.base_dn, clauses, ["cn"]) or self.groups_named(name)
        )

    def groups_named(self, name: str) -> list[Entry]:
        return self._directory.search(self._settings.groups, equals("cn", name), GROUP_ATTRIBUTES)

    def groups_made_for(self, user: OfferingUser) -> list[Entry]:
        """Personal groups that say that they were made for this person."""
        return self._directory.search(
            self._settings.groups, equals("description", mark_of(user)), GROUP_ATTRIBUTES
        )

    def changes(self, user: OfferingUser, entry: Entry) -> tuple[tuple[str, str], ...]:
        """What Waldur knows better. What is empty there, or one of several values here, is left alone."""
        wanted = {"givenName": user.first_name, "sn": user.last_name, "mail": user.email}
        if user.first_name and user.last_name:
            wanted["cn"] = f"{user.first_name} {user.last_name}"
        if self._login:
            wanted[self._login] = user.waldur_username
        return tuple(
            (name, value) for name, value in wanted.items() if value and value not in entry.all(name)
        )

    def write(self, username: str, changes: Iterable[tuple[str, str]]) -> None:
        """Raises BackendError where there is no such user any more."""
        entry = self.named([username]).get(username)
        if entry is None:
            raise BackendError(f"LDAP: there is no user {username}")
        self._directory.modify(entry.dn, {name: [(REPLACE, [value])] for name, value in changes})

    def _users(self, clauses: str) -> list[Entry]:
        wanted = ["uid", "uidNumber", "gidNumber", "cn", "sn", "givenName", "mail"]
        wanted += [self._login] if self._login else []
        return [e for e in self._directory.search(self._settings.people, clauses, wanted) if e.first("uid")]

    def _by_mail(self, email: str) -> Entry | None:
        found = self._users(equals("mail", email)) if email else []
        if len(found) > 1:
            names = ", ".join(sorted(entry.first("uid") for entry in found)[:5])
            raise BackendError(f"LDAP: {email} is the mail of several users: {names}")
        return found[0] if found else None

    def _by_login(self, user: OfferingUser) -> Entry | None:
        """The entry whose uid is the login in Waldur, unless it carries the login of somebody else."""
        found = self._users(equals("uid", user.waldur_username)) if user.waldur_username else []
        return next((e for e in found if not (self._login and e.all(self._login))), None)


def mark_of(user: OfferingUser) -> str:
    """What a personal group says of its owner."""
    return f"personal group of Waldur user {user.user_uuid}"


def is_of_the_system(entry: Entry) -> bool:
    """Is it root, or an account that is no person's? One without a number is nobody's login."""
    number = entry.number("uidNumber")
    return number is None or number < FIRST_PERSON
