# SPDX-License-Identifier: MIT
"""Places of people in groups: by name (`memberUid`) and by DN (`member`), of which groupOfNames needs one."""

from __future__ import annotations

import logging
from collections.abc import Set

from agent.core.errors import BackendError
from backends.usernames.ldap.directory import (
    ADD,
    DELETE,
    AlreadyThere,
    ClassViolation,
    Directory,
    LdapEntry,
    NotThere,
    equals,
)
from backends.usernames.ldap.schema import LdapSettings

log = logging.getLogger(__name__)

NAMES, DNS = "memberUid", "member"


class GroupWriter:
    """Adds people to groups and takes them out, through one connection."""

    def __init__(self, directory: Directory, settings: LdapSettings) -> None:
        self._directory = directory
        self._settings = settings

    def join_access(self, username: str, dn: str) -> None:
        """Add a user, whose entry has this DN, to the access groups; one that refuses is logged."""
        for access in self._settings.access_groups:
            group = self._directory.group_dn(access.name)
            try:
                self.join(group, access.attribute, dn if access.attribute == DNS else username)
            except BackendError as error:
                log.warning("LDAP: user %s is not in the access group %s: %s", username, access.name, error)

    def leave_access(self, username: str, dn: str) -> None:
        """Take a user, whose entry has or had this DN, out of the access groups. Raises BackendError."""
        for access in self._settings.access_groups:
            group = self._directory.group_dn(access.name)
            self.leave(group, access.attribute, dn if access.attribute == DNS else username)

    def leave_all(self, username: str, dn: str, keep: Set[str]) -> None:
        """Take a user out of every group but those of `keep` (DNs). Raises BackendError."""
        for attribute, value in ((NAMES, username), (DNS, dn)):
            for group in self._holding(attribute, value):
                if group.dn not in keep:
                    self.leave(group.dn, attribute, value)

    def replace(self, old: str, new: str, old_dn: str, new_dn: str, *, is_leaving: bool) -> None:
        """Let a user join, under its new name, every group that has the old one; or leave them under the old one."""
        for attribute, before, after in ((NAMES, old, new), (DNS, old_dn, new_dn)):
            for group in self._holding(attribute, before):
                if is_leaving:
                    self.leave(group.dn, attribute, before)
                else:
                    self.join(group.dn, attribute, after)

    def join(self, group_dn: str, attribute: str, value: str) -> None:
        """Add a member, who takes the place of the stand-in of an empty group. Raises BackendError."""
        try:
            self._directory.modify(group_dn, {attribute: [(ADD, [value])]})
        except AlreadyThere:
            return
        if attribute == DNS and value != self._settings.empty_member:
            try:
                self._directory.modify(group_dn, {DNS: [(DELETE, [self._settings.empty_member])]})
            except NotThere:
                return

    def leave(self, group_dn: str, attribute: str, value: str) -> None:
        """Remove a member. One who is not in it, or no such group, is no error. Raises BackendError."""
        try:
            self._directory.modify(group_dn, {attribute: [(DELETE, [value])]})
        except NotThere:
            return
        except ClassViolation:
            steps = [(ADD, [self._settings.empty_member]), (DELETE, [value])]
            self._directory.modify(group_dn, {attribute: steps})

    def _holding(self, attribute: str, value: str) -> list[LdapEntry]:
        return self._directory.search(self._settings.base_dn, equals(attribute, value), ["cn"])
