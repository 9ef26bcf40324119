# SPDX-License-Identifier: MIT
"""Groups of the directory that are named like accounts: read together, changed with one call per group.

A group is ours when its number is in gid_range and it is no user's personal group. A group that gives rights on this
host (`sudo`, `docker`), whatever its number in the directory, is never made, joined or deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from agent.core.actions import Effect, Target
from agent.core.directory import DirectoryGroup
from agent.core.directory_actions import DirectoryAction
from agent.core.errors import BackendError
from agent.core.plans import Outcome
from backends.usernames import nss
from backends.usernames.candidates import group_problem
from backends.usernames.ldap.directory import (
    ADD,
    DELETE,
    AlreadyThere,
    Directory,
    LdapEntry,
    NotThere,
    any_of,
)
from backends.usernames.ldap.group_by_group import group_by_group
from backends.usernames.ldap.ids import IdAllocator
from backends.usernames.ldap.schema import LdapSettings

ATTRIBUTES = ("cn", "gidNumber", "memberUid", "description", "objectClass")
PERSONAL = "personal group of "


class ProjectGroups:
    """Reads and changes groups over one connection, from `open` to `close`."""

    def __init__(self, settings: LdapSettings) -> None:
        self._settings = settings
        self._directory = Directory(settings)
        self._ids = IdAllocator(self._directory, settings)

    def open(self) -> None:
        self._directory.open()

    def close(self) -> None:
        self._directory.close()

    def read(self, names: Iterable[str]) -> dict[str, DirectoryGroup]:
        """Return the groups of these names, and an obstacle for each name that no group may have.

        Raises BackendError; a part of the result is never taken for the whole.
        """
        wanted = list(names)
        found = [
            entry
            for clauses in any_of("cn", wanted)
            for entry in self._directory.search(self._settings.groups, clauses, ATTRIBUTES)
        ]
        people = {
            entry.first("uid").lower()
            for clauses in any_of("uid", wanted)
            for entry in self._directory.search(self._settings.base_dn, clauses, ["uid"])
        }
        by_name = {entry.first("cn").lower(): entry for entry in found}
        groups = {}
        for name in wanted:
            entry = by_name.get(name.lower())
            obstacle = self._obstacle(name, entry, is_username=name.lower() in people)
            if entry is not None or obstacle:
                members = entry.all("memberUid") if entry else ()
                gid = entry.number("gidNumber") if entry else None
                groups[name] = DirectoryGroup(name, frozenset(members), obstacle, gid)
        return groups

    def _obstacle(self, name: str, entry: LdapEntry | None, *, is_username: bool) -> str:
        """Return why the group must be left alone, or not be made; empty where it may."""
        if entry is None:
            if is_username:
                return f"no group {name} can be made: a user has this name"
            if problem := group_problem(name):
                return f"no group {name!r} can be made: {problem}"
        else:
            name, gid, numbers = entry.first("cn"), entry.number("gidNumber"), self._settings.gids
            if any(text.startswith(PERSONAL) for text in entry.all("description")) or is_username:
                return f"group {name} is the personal group of a user"
            if gid not in numbers:
                return (
                    f"group {name} has the number {gid}, outside gid_range ({numbers.start} to {numbers.end})"
                )
        return f"group {name} is a group of the system on this host" if nss.is_system_group(name) else ""

    def apply(self, actions: Sequence[DirectoryAction]) -> list[Outcome]:
        """Carry the actions out. Return one outcome for each.

        An error fails the actions of its group; an outage fails all that follow.
        """
        return group_by_group(actions, self._changed)

    def _changed(self, name: str, actions: Sequence[DirectoryAction]) -> list[Outcome]:
        """Change the group first, then its members in one call; one by one where a value is there, or gone, already."""
        strange = next((a for a in actions if a.target is not Target.GROUP), None)
        if strange is not None:
            raise BackendError(f"cannot {strange.verb} here")
        dn = self._directory.group_dn(name)
        members = [a for a in actions if _user_of(a)]
        others = [a for a in actions if not _user_of(a)]
        for action in others:
            if action.effect is Effect.ADD:
                self._create(name, dn)
            else:
                with suppress(NotThere):
                    self._directory.delete(dn)
        done = list(map(Outcome, others))
        if not members:
            return done
        try:
            self._directory.modify(dn, _member_changes(members))
        except (AlreadyThere, NotThere):
            return [*done, *(self._one_member(dn, action) for action in members)]
        return [*done, *map(Outcome, members)]

    def _one_member(self, dn: str, action: DirectoryAction) -> Outcome:
        try:
            self._directory.modify(dn, _member_changes([action]))
        except AlreadyThere:
            return Outcome(action)
        except NotThere as error:  # not a member any more, or the group is gone
            return Outcome(action, None if action.effect is Effect.REMOVE else error)
        except BackendError as error:
            return Outcome(action, error)
        return Outcome(action)

    def _create(self, name: str, dn: str) -> None:
        gid = self._ids.next_gid()
        attributes = {"cn": [name], "gidNumber": [str(gid)]}
        try:
            self._directory.add(dn, self._settings.project_group_classes, attributes)
        except AlreadyThere as error:
            # Made since we looked: whether it is ours to fill, the next pass sees.
            raise BackendError(f"LDAP: there is a group {name} now; the next pass looks at it") from error


def _user_of(action: DirectoryAction) -> str:
    """Return who joins or leaves the group; empty where the action is about the group itself."""
    return action.ids().get("user", "")


def _member_changes(
    actions: Iterable[DirectoryAction],
) -> Mapping[str, list[tuple[str, list[str]]]]:
    listed = list(actions)
    added = [_user_of(action) for action in listed if action.effect is Effect.ADD]
    removed = [_user_of(action) for action in listed if action.effect is Effect.REMOVE]
    steps = [(DELETE, removed), (ADD, added)]
    return {"memberUid": [(how, users) for how, users in steps if users]}
