# SPDX-License-Identifier: MIT
"""Gives numbers to users and groups: each once and never again, for files keep the number of who has gone.

The highest number given so far stands in the directory itself, in `cn=waldur-site-cluster-ids` below the groups,
as `description: uid 10007`. It is moved by one modification that takes the old value away and adds the new one,
so of two agents that want the same number one fails and tries again. A number is taken before it is used:
what fails afterwards leaves a gap.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.core.errors import BackendError, BackendUnavailable
from backends.command_output import is_whole
from backends.usernames import nss
from backends.usernames.ldap.directory import ADD, DELETE, AlreadyThere, Directory, NotThere, any_of
from backends.usernames.ldap.schema import IdRange, LdapSettings

COUNTER = "waldur-site-cluster-ids"
COUNTER_CLASSES = ("organizationalRole", "top")
ROUNDS = 50
AT_ONCE = 10

ATTRIBUTES = {"uid": "uidNumber", "gid": "gidNumber"}
ON_HOST: dict[str, Callable[[int], bool]] = {"uid": nss.has_uid, "gid": nss.has_gid}


class RangeFull(BackendError):
    """No number is left in a range: a fault of the site, not of the person who comes too late."""

    of_host = True


class IdAllocator:
    """The counter of one directory."""

    def __init__(self, directory: Directory, settings: LdapSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._counter = directory.group_dn(COUNTER)

    def next_uid(self) -> int:
        """Return a uidNumber that was never given. Raises RangeFull."""
        return self._next("uid", self._settings.uids)

    def next_gid(self) -> int:
        """Return a gidNumber that was never given. Raises RangeFull."""
        return self._next("gid", self._settings.gids)

    def require_room(self) -> None:
        """Raise RangeFull where the next person could not get both numbers. Takes none."""
        for kind, numbers in (("uid", self._settings.uids), ("gid", self._settings.gids)):
            self._candidate(kind, numbers)

    def _next(self, kind: str, numbers: IdRange) -> int:
        for _ in range(ROUNDS):
            is_there, given, number = self._candidate(kind, numbers)
            value = f"{kind} {number}"
            try:
                if not is_there:
                    attributes = {"cn": [COUNTER], "description": [value]}
                    self._directory.add(self._counter, COUNTER_CLASSES, attributes)
                else:
                    steps = [(DELETE, [f"{kind} {given}"])] if given is not None else []
                    self._directory.modify(self._counter, {"description": [*steps, (ADD, [value])]})
            except (AlreadyThere, NotThere):
                continue  # another agent was faster
            return number
        raise BackendUnavailable(f"LDAP: other agents take numbers from {self._counter} faster than we can")

    def _candidate(self, kind: str, numbers: IdRange) -> tuple[bool, int | None, int]:
        """Return whether the counter is there, the highest number given in this range, and the next to be given.

        Where the counter names none of this range, it begins above whatever is in use. Raises RangeFull.
        """
        found = self._directory.search(
            self._settings.groups, f"(&(objectClass={COUNTER_CLASSES[0]})(cn={COUNTER}))", ["description"]
        )
        counts = [text.split() for entry in found for text in entry.all("description")]
        named = [int(c[1]) for c in counts if len(c) == 2 and c[0] == kind and is_whole(c[1])]
        given = max((number for number in named if number in numbers), default=None)
        above = given
        if above is None:
            attribute = ATTRIBUTES[kind]
            entries = self._directory.search(self._settings.base_dn, f"({attribute}=*)", [attribute])
            used = [number for entry in entries if (number := entry.number(attribute)) in numbers]
            above = max((number for number in used if number is not None), default=numbers.start - 1)
        return bool(found), given, self._free_above(kind, numbers, above)

    def _free_above(self, kind: str, numbers: IdRange, given: int) -> int:
        attribute = ATTRIBUTES[kind]
        for first in range(given + 1, numbers.end + 1, AT_ONCE):
            wanted = range(first, min(first + AT_ONCE, numbers.end + 1))
            used = {
                entry.number(attribute)
                for clauses in any_of(attribute, map(str, wanted))
                for entry in self._directory.search(self._settings.base_dn, clauses, [attribute])
            }
            for number in wanted:
                if number not in used and not ON_HOST[kind](number):
                    return number
        raise RangeFull(
            f"LDAP: the numbers of {numbers.key} ({numbers.start} to {numbers.end}) are used up (those of "
            f"deleted entries are not given again): raise backend_settings.ldap.{numbers.key}_end"
        )
