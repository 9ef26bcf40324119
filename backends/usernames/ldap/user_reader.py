# SPDX-License-Identifier: MIT
"""Users of the directory: finds people again, reads their entries, brings these up to date."""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.directory_actions import DeactivateUser
from agent.core.errors import BackendError
from agent.core.model import OfferingUser
from agent.core.system_users import is_system_number
from backends.usernames.ldap.directory import REPLACE, Directory, LdapEntry, any_of, equals
from backends.usernames.ldap.schema import LdapSettings

DISABLED = "waldur-site-agent:disabled"
OWNED_BY = "personal group of Waldur user "
GROUP_ATTRIBUTES = ("cn", "gidNumber", "memberUid", "description")


class UserReader:
    """Reads and updates users through one connection."""

    def __init__(self, directory: Directory, settings: LdapSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._login = settings.waldur_username_attribute

    def find(self, user: OfferingUser) -> LdapEntry | None:
        """Return the person's entry: by the login it carries, the group that we made, the e-mail, the login as uid.

        Raises BackendError where several people have this e-mail.
        """
        if self._login and user.waldur_username:
            mine = self.users(equals(self._login, user.waldur_username))
            if mine:
                return mine[0]
        made = self.named(group.first("cn") for group in self.groups_made_for(user))
        if made:
            return next(iter(made.values()))
        same_mail = self.users(equals("mail", user.email)) if user.email else []
        if len(same_mail) > 1:
            names = ", ".join(sorted(entry.first("uid") for entry in same_mail)[:5])
            raise BackendError(f"LDAP: {user.email} is the mail of several users: {names}")
        if same_mail:
            return same_mail[0]
        same_login = self.users(equals("uid", user.waldur_username)) if user.waldur_username else []
        # An entry that carries a login is that person's, whatever its uid.
        return next((e for e in same_login if not (self._login and e.all(self._login))), None)

    def named(self, usernames: Iterable[str]) -> dict[str, LdapEntry]:
        """Return entries by username, read together."""
        return {
            entry.first("uid"): entry for clauses in any_of("uid", usernames) for entry in self.users(clauses)
        }

    def leaver(self, action: DeactivateUser) -> LdapEntry | None:
        """Return the entry of a person who leaves, None where there is none. Raises BackendError for another user's."""
        entry = self.named([action.user]).get(action.user)
        if entry is not None and (reason := self._mismatch(entry, action)):
            raise BackendError(
                f"LDAP: {action.user} is left as it is, neither disabled nor deleted: {reason}. Look whose {entry.dn} "
                "is: correct the entry or the account in Waldur, or release it by hand"
            )
        return entry

    def _mismatch(self, entry: LdapEntry, action: DeactivateUser) -> str:
        """Return why an entry is not the leaver's, empty where it is."""
        number, follows = entry.number("uidNumber"), self._settings.account_rules is not None
        if is_of_the_system(entry):
            return f"it is an account of the system (uidNumber {'none' if number is None else number})"
        if not follows and number not in self._settings.uids:
            return f"its uidNumber {number} is outside uid_range, so it was not made here"
        if follows and number != action.uid:
            waldur_has = "shows no uidnumber" if action.uid is None else f"has uidnumber {action.uid}"
            return f"it has uidNumber {number}, and Waldur {waldur_has} for this person"
        logins = entry.all(self._login) if self._login else ()
        if logins and action.login not in logins:
            return (
                f"it carries the login {', '.join(logins)}, and the person's is {action.login or 'not known'}"
            )
        return ""

    def is_taken(self, name: str) -> bool:
        """Return whether a user or a group of this name is anywhere in the directory."""
        clauses = f"(|{equals('uid', name)}(&(objectClass=posixGroup){equals('cn', name)}))"
        return bool(
            self._directory.search(self._settings.base_dn, clauses, ["cn"]) or self.groups_named(name)
        )

    def groups_named(self, name: str) -> list[LdapEntry]:
        """Return the groups of this name."""
        return self._directory.search(self._settings.groups, equals("cn", name), GROUP_ATTRIBUTES)

    def groups_made_for(self, user: OfferingUser) -> list[LdapEntry]:
        """Return the personal groups whose description names this person."""
        return self._directory.search(
            self._settings.groups, equals("description", owner_description(user)), GROUP_ATTRIBUTES
        )

    def changes(self, user: OfferingUser, entry: LdapEntry) -> tuple[tuple[str, str], ...]:
        """Return the attributes to set as in Waldur. What is empty there, or one of several values here, stays."""
        wanted = {"givenName": user.first_name, "sn": user.last_name, "mail": user.email}
        if self._settings.account_rules is not None and user.posix is not None:
            wanted["homeDirectory"] = user.posix.home
            # Who is disabled has the shell for it.
            wanted["loginShell"] = "" if DISABLED in entry.all("description") else user.posix.shell
        if user.first_name and user.last_name:
            wanted["cn"] = f"{user.first_name} {user.last_name}"
        if self._login:
            wanted[self._login] = user.waldur_username
        return tuple(
            (name, value) for name, value in wanted.items() if value and value not in entry.all(name)
        )

    def write(self, username: str, changes: Iterable[tuple[str, str]]) -> None:
        """Set the attributes. Raises BackendError where there is no such user any more."""
        entry = self.named([username]).get(username)
        if entry is None:
            raise BackendError(f"LDAP: there is no user {username}")
        self._directory.modify(entry.dn, {name: [(REPLACE, [value])] for name, value in changes})

    def users(self, clauses: str) -> list[LdapEntry]:
        """Return the people who match."""
        wanted = ["uid", "uidNumber", "gidNumber", "cn", "sn", "givenName", "mail", "description"]
        wanted += ["homeDirectory", "loginShell", "objectClass"]
        wanted += [self._login] if self._login else []
        return [e for e in self._directory.search(self._settings.people, clauses, wanted) if e.first("uid")]


def owner_description(user: OfferingUser) -> str:
    """Return the description of a personal group, by which its owner is found."""
    return f"{OWNED_BY}{user.user_uuid}"


def is_of_the_system(entry: LdapEntry) -> bool:
    """Return whether it is root, or a user that is no person. One without a number cannot log in."""
    number = entry.number("uidNumber")
    return number is None or is_system_number(number)
