# SPDX-License-Identifier: MIT
"""People of a directory that follows Waldur: read, made with Waldur's numbers, renamed, disabled and enabled.

A renaming is noted in the entry (`description`) before its first step and that note goes last, so that one that was cut
off is found and finished. What the agent has disabled says so in its `description` as well. Both texts are the
reference's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar

from agent.core.directory import DirectoryPeople, DirectoryUser
from agent.core.directory_actions import AdoptNumbers, DeactivateUser, EnableUser, RenameUser
from agent.core.errors import BackendError
from agent.core.homes import home_name
from agent.core.model import OfferingUser
from backends.usernames import nss
from backends.usernames.candidates import posix_problem
from backends.usernames.ldap.directory import (
    ADD,
    DELETE,
    REPLACE,
    AlreadyThere,
    Changes,
    Directory,
    LdapEntry,
    NotThere,
    any_of,
    equals,
    one_of,
    sibling_dn,
)
from backends.usernames.ldap.groups import GroupWriter
from backends.usernames.ldap.schema import LdapSettings
from backends.usernames.ldap.user_reader import DISABLED, UserReader

RENAMED_FROM = "waldur-site-agent:renamed-from="
NO_LOGIN = "/usr/sbin/nologin"
# shadow(5): the account has expired on the second day of 1970.
EXPIRED = "1"
SHADOW = "shadowAccount"

Key = TypeVar("Key")
Value = TypeVar("Value")


class FollowedPeople:
    """Reads and changes people through one connection."""

    def __init__(
        self, directory: Directory, reader: UserReader, groups: GroupWriter, settings: LdapSettings
    ) -> None:
        self._directory = directory
        self._reader = reader
        self._groups = groups
        self._settings = settings

    def read(self, users: Sequence[OfferingUser]) -> DirectoryPeople:
        """Return the entries with a name, number or login of these users, and groups in the way of new ones."""
        found = {entry.dn: entry for clauses in self._filters(users) for entry in self._reader.users(clauses)}
        by_name = {entry.first("uid"): entry for entry in found.values()}
        # Who has no entry, or may adopt a number, would get a group's number.
        grouped = [user for user in users if _lacks_numbers(user, by_name.get(user.username))]
        stale = {
            user.username: changes
            for user in users
            if (entry := by_name.get(user.username)) and (changes := self._reader.changes(user, entry))
        }
        numbers = [user.posix for user in grouped if user.posix is not None]
        names = {user.username for user in grouped}
        names |= {home_name(user.posix.home) for user in users if user.posix and _is_new_home(user, by_name)}
        return DirectoryPeople(
            tuple(self._user(entry) for entry in found.values()),
            self._groups_of(grouped),
            stale,
            {user.username: problem for user in users if (problem := _name_problem(user.username))},
            host_uids=_known(nss.uid_of, names - {""}),
            host_users=_known(nss.user_of, (posix.uid for posix in numbers)),
            host_groups=_known(nss.group_of, (posix.gid for posix in numbers)),
        )

    def _filters(self, users: Sequence[OfferingUser]) -> Iterator[str]:
        """Yield filters for the entries with a name, number or login of these users."""
        terms = []
        for user in users:
            # Most entries have both: one after the other they are in one filter, and the entry in one answer.
            terms.append(equals("uid", user.username))
            if user.posix and user.posix.uid is not None:
                terms.append(equals("uidNumber", str(user.posix.uid)))
        yield from one_of(terms)
        # In filters of their own: a directory may have no index for logins, and then looks through all entries.
        if login := self._settings.waldur_username_attribute:
            yield from any_of(login, (user.waldur_username for user in users if user.waldur_username))

    def _groups_of(self, users: Sequence[OfferingUser]) -> tuple[tuple[str, int | None], ...]:
        gids = [str(user.posix.gid) for user in users if user.posix and user.posix.gid is not None]
        names = [user.username for user in users]
        groups = {
            entry.dn: (entry.first("cn"), entry.number("gidNumber"))
            for clauses in chain(any_of("cn", names), any_of("gidNumber", gids))
            for entry in self._directory.search(
                self._settings.base_dn, f"(&(objectClass=posixGroup){clauses})", ["cn", "gidNumber"]
            )
        }
        return tuple(groups.values())

    def _user(self, entry: LdapEntry) -> DirectoryUser:
        notes = entry.all("description")
        return DirectoryUser(
            entry.first("uid"),
            entry.number("uidNumber"),
            entry.number("gidNumber"),
            login=entry.first(self._settings.waldur_username_attribute or "-"),
            renamed_from=next(
                (text.removeprefix(RENAMED_FROM) for text in notes if text.startswith(RENAMED_FROM)), ""
            ),
            is_parked=DISABLED in notes,
            home=entry.first("homeDirectory"),
            shell=entry.first("loginShell"),
        )

    def rename(self, action: RenameUser) -> None:
        """Rename a user: into its groups under the new name first, out of them under the old one last."""
        old, new = action.before, action.user
        entries = self._reader.named([old, new])
        if old in entries:
            if new in entries:
                raise BackendError(f"LDAP: {old} and {new} are both there: remove the one that is wrong")
            old_dn = entries[old].dn
            new_dn = sibling_dn(old_dn, self._directory.user_rdn(new))
            with suppress(AlreadyThere):
                self._directory.modify(old_dn, {"description": [(ADD, [f"{RENAMED_FROM}{old}"])]})
            self._groups.replace(old, new, old_dn, new_dn, is_leaving=False)
            for personal in self._reader.groups_named(old):
                if personal.number("gidNumber") == entries[old].number("gidNumber"):
                    self._directory.rename(personal.dn, self._directory.group_rdn(new))
            self._directory.rename(old_dn, self._directory.user_rdn(new))
        elif new in entries:
            new_dn = entries[new].dn
            old_dn = sibling_dn(new_dn, self._directory.user_rdn(old))
        else:
            raise BackendError(f"LDAP: there is no user {old} to be renamed to {new}")
        self._groups.replace(old, new, old_dn, new_dn, is_leaving=True)
        with suppress(NotThere):
            self._directory.modify(new_dn, {"description": [(DELETE, [f"{RENAMED_FROM}{old}"])]})

    def adopt(self, action: AdoptNumbers) -> None:
        """Give an entry and its personal group Waldur's numbers."""
        entry = self._named(action.user)
        (uid, gid), (_, old_gid) = action.after, action.before
        if self._settings.account_rules is not None and self._settings.account_rules.personal_groups:
            for personal in self._reader.groups_named(action.user):
                if personal.number("gidNumber") == old_gid:
                    self._directory.modify(personal.dn, {"gidNumber": [(REPLACE, [str(gid)])]})
        self._directory.modify(
            entry.dn, {"uidNumber": [(REPLACE, [str(uid)])], "gidNumber": [(REPLACE, [str(gid)])]}
        )

    def disable(self, action: DeactivateUser) -> None:
        """Keep a user and let no person log in as it: out of all groups but its own. One that is not there is no error.

        Raises BackendError for an entry that is not this person's.
        """
        username, entry = action.user, self._reader.leaver(action)
        if entry is None:
            return
        own = {
            personal.dn
            for personal in self._reader.groups_named(username)
            if personal.number("gidNumber") == entry.number("gidNumber")
        }
        self._groups.leave_all(username, entry.dn, keep=own)
        if DISABLED in entry.all("description"):
            return
        changes: dict[str, list[tuple[Any, Sequence[str]]]] = {
            "loginShell": [(REPLACE, [NO_LOGIN])],
            "shadowExpire": [(REPLACE, [EXPIRED])],
            "description": [(ADD, [DISABLED])],
        }
        if SHADOW.casefold() not in {word.casefold() for word in entry.all("objectClass")}:
            changes["objectClass"] = [(ADD, [SHADOW])]
        self._directory.modify(entry.dn, changes)

    def enable(self, action: EnableUser) -> None:
        """Let a user log in again whom `disable` kept from it."""
        entry = self._named(action.user)
        shell = action.shell or self._settings.login_shell
        changes: Changes = {
            "loginShell": [(REPLACE, [shell])],
            "shadowExpire": [(REPLACE, [])],
            "description": [(DELETE, [DISABLED])],
        }
        self._groups.join_access(action.user, entry.dn)
        with suppress(NotThere):
            self._directory.modify(entry.dn, changes)

    def _named(self, username: str) -> LdapEntry:
        entry = self._reader.named([username]).get(username)
        if entry is None:
            raise BackendError(f"LDAP: there is no user {username}")
        return entry


def _lacks_numbers(user: OfferingUser, entry: LdapEntry | None) -> bool:
    """Return whether this name is free, or a user with other numbers than Waldur's has it."""
    if entry is None or user.posix is None:
        return entry is None
    return (entry.number("uidNumber"), entry.number("gidNumber")) != (user.posix.uid, user.posix.gid)


def _is_new_home(user: OfferingUser, entries: Mapping[str, LdapEntry]) -> bool:
    """Return whether Waldur has another home for the user than the entry of that name."""
    home, entry = user.posix.home if user.posix else "", entries.get(user.username)
    return bool(home) and (entry is None or entry.first("homeDirectory") != home)


def _known(look_up: Callable[[Key], Value | None], keys: Iterable[Key | None]) -> dict[Key, Value]:
    """Return what this host knows of these names or numbers."""
    return {key: found for key in keys if key is not None and (found := look_up(key)) is not None}


def _name_problem(name: str) -> str:
    """Return why no user may have this name; empty when one may."""
    return posix_problem(name) or ("it is an account of the system here" if nss.is_system_user(name) else "")
