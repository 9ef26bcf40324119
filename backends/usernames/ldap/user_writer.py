# SPDX-License-Identifier: MIT
"""Makes users of the directory, each with a group of its own, and removes them.

The personal group comes first and names its owner (`description`): what a crash or an outage leaves half done is
found by that and finished by the next pass, under the same name. Where the user's entry is refused, the group
is deleted again; where the server did not reply, nothing is undone, for the entry may be there.
"""

from __future__ import annotations

import logging
import secrets
import string
import time
from dataclasses import dataclass, replace

from agent.config.secret import Secret
from agent.core.directory_actions import DeactivateUser
from agent.core.errors import BackendError
from agent.core.model import OfferingUser, PosixAccount
from backends.usernames.ldap.directory import AlreadyThere, Directory, LdapEntry, NotThere
from backends.usernames.ldap.groups import GroupWriter
from backends.usernames.ldap.ids import IdAllocator
from backends.usernames.ldap.schema import LdapSettings
from backends.usernames.ldap.user_reader import OWNED_BY, UserReader, owner_description

log = logging.getLogger(__name__)

# Seconds that another agent gets between the group that it has made for a person and the user.
OTHERS_S = 2.0
PAUSE_S = 0.05
PASSWORD_LENGTH = 16
PASSWORD_CHARACTERS = string.ascii_letters + string.digits + string.punctuation


class NameTaken(BackendError):
    """Another process has taken the name since it was seen free."""


@dataclass(frozen=True, slots=True)
class NewUser:
    """A user that was just made."""

    username: str
    uid_number: int
    home: str
    # Empty unless the site wants one for its VPN.
    password: Secret


class UserWriter:
    """Makes and removes users through one connection."""

    def __init__(
        self, directory: Directory, reader: UserReader, groups: GroupWriter, settings: LdapSettings
    ) -> None:
        self._directory = directory
        self._reader = reader
        self._groups = groups
        self._settings = settings
        self._ids = IdAllocator(directory, settings)

    def begun_group(self, user: OfferingUser) -> LdapEntry | None:
        """Return the personal group made for this person, by us or by another agent; the oldest of several."""
        return min(self._reader.groups_made_for(user), key=_gid, default=None)

    def made_by_others(self, user: OfferingUser, *, own_group: str = "") -> str:
        """Return the name of the user that another agent makes for this person now; empty where none does.

        Who has made a group and saw no older one goes on to make the user; who saw one takes the group back. Either is
        waited for. A group of which neither is true after OTHERS_S remains from a crash.
        """
        until_s = time.monotonic() + OTHERS_S
        while others := {group.first("cn") for group in self._reader.groups_made_for(user)} - {own_group}:
            if made := self._reader.named(others):
                return next(iter(made))
            if time.monotonic() > until_s:
                break
            time.sleep(PAUSE_S)
        return ""

    def require_room(self) -> None:
        """Raise RangeFull where no new user can be made."""
        self._ids.require_room()

    def create(self, user: OfferingUser, name: str, group: LdapEntry | None = None) -> NewUser:
        """Make the user, and its group unless that was begun. Raises NameTaken where the name is taken after all."""
        uid = self._ids.next_uid()
        gid = _gid(group) if group else self._make_group(user, name)
        return self._create(user, PosixAccount(uid, gid), name, has_new_group=group is None)

    def create_as(self, user: OfferingUser, uid: int, gid: int) -> NewUser:
        """Make the user with these numbers, and the home and shell that Waldur has. Raises NameTaken."""
        rules, name = self._settings.account_rules, user.username
        has_new_group = False
        if rules is not None and rules.personal_groups and not self._reader.groups_named(name):
            self._add_group(user, name, gid)
            has_new_group = True
        known = user.posix or PosixAccount()
        return self._create(user, replace(known, uid=uid, gid=gid), name, has_new_group=has_new_group)

    def _create(self, user: OfferingUser, posix: PosixAccount, name: str, *, has_new_group: bool) -> NewUser:
        settings = self._settings
        assert posix.uid is not None
        length = PASSWORD_LENGTH if settings.generate_vpn_password else 0
        password = Secret("".join(secrets.choice(PASSWORD_CHARACTERS) for _ in range(length)))
        made = NewUser(name, posix.uid, posix.home or f"{settings.home_base}/{name}", password)
        values = {
            "uid": name,
            "cn": f"{user.first_name} {user.last_name}".strip() or name,
            "givenName": user.first_name or name,
            "sn": user.last_name or name,
            "uidNumber": str(posix.uid),
            "gidNumber": str(posix.gid),
            "homeDirectory": made.home,
            "loginShell": posix.shell or settings.login_shell,
            "mail": user.email,
            "userPassword": password.reveal(),
        }
        if settings.waldur_username_attribute:
            values[settings.waldur_username_attribute] = user.waldur_username
        attributes = {attribute: [value] for attribute, value in values.items() if value}
        dn = self._directory.user_dn(name)
        try:
            self._directory.add(dn, settings.user_classes, attributes)
        except BackendError as error:
            if has_new_group and not error.retryable:
                self._roll_back(name)
            if isinstance(error, AlreadyThere):
                raise NameTaken(str(error)) from error
            raise
        self._groups.join_access(name, dn)
        return made

    def remove(self, action: DeactivateUser) -> None:
        """Delete the user, its places in the access groups and its own group. A user who is not there is no error: a
        removal that was cut off after the entry goes on with a group that was made for the name.

        Raises BackendError for an entry that is not this person's.
        """
        username, entry = action.user, self._reader.leaver(action)
        follows = self._settings.account_rules is not None
        self._groups.leave_access(username, entry.dn if entry else self._directory.user_dn(username))
        if entry is not None:
            self._delete(entry.dn)
        for personal in self._reader.groups_named(username):
            others = set(personal.all("memberUid")) - {username}
            gid = personal.number("gidNumber")
            if entry is not None:
                is_own = gid == entry.number("gidNumber")
            else:
                is_own = any(text.startswith(OWNED_BY) for text in personal.all("description"))
            if not others and (is_own if follows else gid in self._settings.gids):
                self._delete(personal.dn)

    def _make_group(self, user: OfferingUser, name: str) -> int:
        """Make the personal group and return its number. Raises NameTaken where a group has this name."""
        gid = self._ids.next_gid()
        self._add_group(user, name, gid)
        oldest = self.begun_group(user)
        if oldest is not None and oldest.first("cn") != name:
            self._roll_back(name)
            raise NameTaken(f"LDAP: another agent has begun {oldest.first('cn')} for this person")
        if made := self.made_by_others(user, own_group=name):
            self._roll_back(name)
            raise NameTaken(f"LDAP: another agent has made {made} for this person")
        return gid

    def _add_group(self, user: OfferingUser, name: str, gid: int) -> None:
        classes = self._settings.user_group_classes
        known = {word.casefold() for word in classes}
        attributes = {
            "cn": [name],
            "gidNumber": [str(gid)],
            "memberUid": [name],
            "description": [owner_description(user)],
            "member": [self._directory.user_dn(name)] if "groupofnames" in known else [],
            "ou": [name] if "organizationalunit" in known else [],
        }
        try:
            self._directory.add(self._directory.group_dn(name), classes, attributes)
        except AlreadyThere as error:
            raise NameTaken(str(error)) from error

    def _roll_back(self, name: str) -> None:
        try:
            self._delete(self._directory.group_dn(name))
        except BackendError as error:
            log.warning("LDAP: the group %s stays behind, a later pass uses it: %s", name, error)

    def _delete(self, dn: str) -> None:
        try:
            self._directory.delete(dn)
        except NotThere:
            return


def _gid(group: LdapEntry) -> int:
    return group.number("gidNumber") or 0
