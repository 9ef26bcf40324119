# SPDX-License-Identifier: MIT
"""Numbers for users and groups: each is given once and never again, for files keep the number of who has gone.

The highest number given so far stands in the directory itself, in `cn=waldur-site-cluster-ids` below the groups,
as `description: uid 10007`. It is moved by one modification that takes the old value away and adds the new one,
so of two agents that want the same number one fails and tries again. A number is taken before it is used:
what fails afterwards leaves a gap.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.core.errors import BackendError, BackendUnavailable
from backends.usernames import nss
from backends.usernames.ldap.directory import ADD, DELETE, AlreadyThere, Directory, NotThere, any_of
from backends.usernames.ldap.schema import IdRange, LdapSettings

COUNTER = "waldur-site-cluster-ids"
COUNTER_CLASSES = ("organizationalRole", "top")
ROUNDS = 50
AT_ONCE = 10

KINDS = {"uid": "uidNumber", "gid": "gidNumber"}
ON_HOST: dict[str, Callable[[int], bool]] = {"uid": nss.has_uid, "gid": nss.has_gid}


class RangeFull(BackendError):
    """No number is left in a range: the site's affair, and no fault of the person who comes too late."""

    of_host = True


class Ids:
    def __init__(self, directory: Directory, settings: LdapSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._counter = directory.group_dn(COUNTER)

    def next_uid(self) -> int:
        """A uidNumber that was never given. Raises RangeFull."""
        return self._next("uid", self._settings.uids)

    def next_gid(self) -> int:
        """A gidNumber that was never given. Raises RangeFull."""
        return self._next("gid", self._settings.gids)

    def require_room(self) -> None:
        """Raises RangeFull where the next person could not get both numbers. Takes none."""
        for kind, numbers in (("uid", self._settings.uids), ("gid", self._settings.gids)):
            self._candidate(kind, numbers)

    def _next(self, kind: str, numbers: IdRange) -> int:
        for _ in range(ROUNDS):
            is_there, mark, number = self._candidate(kind, numbers)
            try:
                self._take(kind, number, mark, is_there=is_there)
            except (AlreadyThere, NotThere):
                continue  # another agent was faster
            return number
        raise BackendUnavailable(f"LDAP: others take numbers from {self._counter} faster than we can")

    def _candidate(self, kind: str, numbers: IdRange) -> tuple[bool, int | None, int]:
        """Is the counter there, where it stands, and the number to be given next. Raises RangeFull."""
        is_there, mark = self._mark(kind, numbers)
        above = self._highest(kind, numbers) if mark is None else mark
        return is_there, mark, self._free_above(kind, numbers, above)

    def _mark(self, kind: str, numbers: IdRange) -> tuple[bool, int | None]:
        """Is the counter there, and the highest number of this range that it names."""
        found = self._directory.search(
            self._settings.groups, f"(&(objectClass={COUNTER_CLASSES[0]})(cn={COUNTER}))", ["description"]
        )
        marks = [text.split() for entry in found for text in entry.all("description")]
        given = [int(mark[1]) for mark in marks if len(mark) == 2 and mark[0] == kind and mark[1].isdecimal()]
        return bool(found), max((number for number in given if number in numbers), default=None)

    def _highest(self, kind: str, numbers: IdRange) -> int:
        """Where to begin in a directory that has no counter yet: above whatever is in use."""
        attribute = KINDS[kind]
        entries = self._directory.search(self._settings.base_dn, f"({attribute}=*)", [attribute])
        used = [number for entry in entries if (number := entry.number(attribute)) in numbers]
        return max((number for number in used if number is not None), default=numbers.start - 1)

    def _free_above(self, kind: str, numbers: IdRange, mark: int) -> int:
        attribute = KINDS[kind]
        for first in range(mark + 1, numbers.end + 1, AT_ONCE):
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
            f"LDAP: the numbers of {numbers.key} ({numbers.start} to {numbers.end}) are used up, for those of deleted "
            f"entries are not given again: raise backend_settings.ldap.{numbers.key}_end"
        )

    def _take(self, kind: str, number: int, mark: int | None, *, is_there: bool) -> None:
        value = f"{kind} {number}"
        if not is_there:
            self._directory.add(self._counter, COUNTER_CLASSES, {"cn": [COUNTER], "description": [value]})
        elif mark is None:
            self._directory.modify(self._counter, {"description": [(ADD, [value])]})
        else:
            old = f"{kind} {mark}"
            self._directory.modify(self._counter, {"description": [(DELETE, [old]), (ADD, [value])]})
