# SPDX-License-Identifier: MIT
"""Users of the directory made, each with a group of its own, and removed.

The personal group comes first and says whose it is (`description`): what a crash or an outage leaves half done is
found by that and finished by the next pass, under the same name. Where the user's entry is refused, the group
goes again; where no answer came, nothing is undone, for the entry may be there.
"""

from __future__ import annotations

import logging
import secrets
import string
from dataclasses import dataclass

from agent.config.secret import Secret
from agent.core.errors import BackendError
from agent.core.model import OfferingUser
from backends.usernames.ldap.directory import ADD, DELETE, AlreadyThere, Directory, Entry, NotThere
from backends.usernames.ldap.ids import Ids
from backends.usernames.ldap.people import People, mark_of
from backends.usernames.ldap.schema import AccessGroup, LdapSettings

log = logging.getLogger(__name__)

PASSWORD_LENGTH = 16


class NameGone(BackendError):
    """Somebody else has taken the name since it was seen free."""


@dataclass(frozen=True, slots=True)
class NewPerson:
    """A user that was just made. `password` is empty unless the site wants one for its VPN."""

    username: str
    uid_number: int
    gid_number: int
    home: str
    password: Secret


class Accounts:
    def __init__(self, directory: Directory, people: People, settings: LdapSettings) -> None:
        self._directory = directory
        self._people = people
        self._settings = settings
        self._ids = Ids(directory, settings)

    def begun(self, user: OfferingUser) -> Entry | None:
        """The personal group that was made for this person, by us or by another agent; the oldest of several."""
        return min(self._people.groups_made_for(user), key=_gid, default=None)

    def require_room(self) -> None:
        """Raises RangeFull where nobody new can be made."""
        self._ids.require_room()

    def create(self, user: OfferingUser, name: str, group: Entry | None = None) -> NewPerson:
        """Make the user, and its group unless that was begun. Raises NameGone where the name is taken after all."""
        uid = self._ids.next_uid()
        gid = _gid(group) if group else self._make_group(user, name)
        person = NewPerson(name, uid, gid, f"{self._settings.home_base}/{name}", self._new_password())
        try:
            self._directory.add(
                self._directory.user_dn(name), self._settings.user_classes, self._attributes(user, person)
            )
        except BackendError as error:
            if group is None and not error.retryable:
                self._roll_back(name)
            if isinstance(error, AlreadyThere):
                raise NameGone(str(error)) from error
            raise
        self._join_access_groups(name)
        return person

    def remove(self, username: str) -> None:
        """Delete the user, its places in the access groups and its own group; who is not there is gone already.

        Raises BackendError for an entry outside uid_range: it was not made here.
        """
        entry = self._people.named([username]).get(username)
        if entry is not None and entry.number("uidNumber") not in self._settings.uids:
            raise BackendError(f"LDAP: {username} is outside uid_range, so it is not ours to remove")
        for group in self._settings.access_groups:
            self._leave(group, username)
        if entry is not None:
            self._delete(entry.dn)
        for personal in self._people.groups_named(username):
            others = set(personal.all("memberUid")) - {username}
            if not others and personal.number("gidNumber") in self._settings.gids:
                self._delete(personal.dn)

    def _new_password(self) -> Secret:
        letters = string.ascii_letters + string.digits + string.punctuation
        wanted = PASSWORD_LENGTH if self._settings.generate_vpn_password else 0
        return Secret("".join(secrets.choice(letters) for _ in range(wanted)))

    def _attributes(self, user: OfferingUser, person: NewPerson) -> dict[str, list[str]]:
        name = person.username
        given = {
            "uid": name,
            "cn": f"{user.first_name} {user.last_name}".strip() or name,
            "givenName": user.first_name or name,
            "sn": user.last_name or name,
            "uidNumber": str(person.uid_number),
            "gidNumber": str(person.gid_number),
            "homeDirectory": person.home,
            "loginShell": self._settings.login_shell,
            "mail": user.email,
            "userPassword": person.password.reveal(),
        }
        if self._settings.waldur_username_attribute:
            given[self._settings.waldur_username_attribute] = user.waldur_username
        return {attribute: [value] for attribute, value in given.items() if value}

    def _make_group(self, user: OfferingUser, name: str) -> int:
        """The number of the new personal group. Raises NameGone where a group has this name."""
        classes = self._settings.user_group_classes
        known = {word.casefold() for word in classes}
        gid = self._ids.next_gid()
        attributes = {
            "cn": [name],
            "gidNumber": [str(gid)],
            "memberUid": [name],
            "description": [mark_of(user)],
            "member": [self._directory.user_dn(name)] if "groupofnames" in known else [],
            "ou": [name] if "organizationalunit" in known else [],
        }
        try:
            self._directory.add(self._directory.group_dn(name), classes, attributes)
        except AlreadyThere as error:
            raise NameGone(str(error)) from error
        oldest = self.begun(user)
        if oldest is not None and oldest.first("cn") != name:
            self._roll_back(name)
            raise NameGone(f"LDAP: another agent has begun {oldest.first('cn')} for this person")
        return gid

    def _roll_back(self, name: str) -> None:
        try:
            self._delete(self._directory.group_dn(name))
        except BackendError as error:
            log.warning("LDAP: the group %s stays behind, a later pass uses it: %s", name, error)

    def _join_access_groups(self, name: str) -> None:
        for group in self._settings.access_groups:
            dn, value = self._directory.group_dn(group.name), self._as_member(group, name)
            try:
                self._directory.modify(dn, {group.attribute: [(ADD, [value])]})
            except AlreadyThere:
                continue
            except BackendError as error:
                log.warning("LDAP: user %s is not in the access group %s: %s", name, group.name, error)

    def _leave(self, group: AccessGroup, name: str) -> None:
        dn, value = self._directory.group_dn(group.name), self._as_member(group, name)
        try:
            self._directory.modify(dn, {group.attribute: [(DELETE, [value])]})
        except NotThere:
            return

    def _as_member(self, group: AccessGroup, name: str) -> str:
        return self._directory.user_dn(name) if group.attribute == "member" else name

    def _delete(self, dn: str) -> None:
        try:
            self._directory.delete(dn)
        except NotThere:
            return


def _gid(group: Entry) -> int:
    return group.number("gidNumber") or 0
