# SPDX-License-Identifier: MIT
"""The directory's groups that are named like accounts: read together, changed with one call per group.

A group is ours when its number is in gid_range and it is nobody's personal group. A group that gives rights on this
host (`sudo`, `docker`), whatever its number in the directory, is never made, joined or deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from agent.core.actions import Effect, Target
from agent.core.directory import DirectoryGroup
from agent.core.directory_actions import DirectoryAction
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.plans import Outcome
from backends.usernames import nss
from backends.usernames.candidates import group_problem
from backends.usernames.ldap.directory import ADD, DELETE, AlreadyThere, Directory, Entry, NotThere, any_of
from backends.usernames.ldap.ids import Ids
from backends.usernames.ldap.schema import LdapSettings

ATTRIBUTES = ("cn", "gidNumber", "memberUid", "description", "objectClass")
PERSONAL = "personal group of "


class ProjectGroups:
    """One connection from `open` to `close`."""

    def __init__(self, settings: LdapSettings) -> None:
        self._settings = settings
        self._directory = Directory(settings)
        self._ids = Ids(self._directory, settings)

    def open(self) -> None:
        self._directory.open()

    def close(self) -> None:
        self._directory.close()

    def read(self, names: Iterable[str]) -> dict[str, DirectoryGroup]:
        """The groups that exist under these names. Raises BackendError; a part is never taken for the whole."""
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
        groups = {
            name: DirectoryGroup(
                name,
                frozenset(by_name[name.lower()].all("memberUid")),
                self._obstacle(by_name[name.lower()], people),
            )
            for name in wanted
            if name.lower() in by_name
        }
        for name in wanted:
            if name not in groups and (problem := self._refusal(name, people)):
                groups[name] = DirectoryGroup(name, obstacle=problem)
        return groups

    def apply(self, actions: Sequence[DirectoryAction]) -> list[Outcome]:
        """Carry the actions out, one outcome for each. What fails fails its group; an outage fails all that follows."""
        outcomes: list[Outcome] = []
        outage: BackendUnavailable | None = None
        for name, several in groupby(actions, key=_group_of):
            listed = list(several)
            try:
                if outage is not None:
                    raise outage
                outcomes += self._changed(name, listed)
            except BackendUnavailable as error:
                outage = error
                outcomes += [Outcome(action, error) for action in listed]
            except BackendError as error:
                outcomes += [Outcome(action, error) for action in listed]
        return outcomes

    def _changed(self, name: str, actions: Sequence[DirectoryAction]) -> list[Outcome]:
        """The group first, then its members in one call; one by one where a value is there, or gone, already."""
        strange = next((a for a in actions if a.target is not Target.GROUP), None)
        if strange is not None:
            raise BackendError(f"cannot {strange.verb} here")
        dn = self._directory.group_dn(name)
        members = [a for a in actions if _user_of(a)]
        others = [self._on_group(name, dn, a) for a in actions if not _user_of(a)]
        if not members:
            return others
        try:
            self._directory.modify(dn, _member_changes(members))
        except (AlreadyThere, NotThere):
            return [*others, *(self._one_member(dn, action) for action in members)]
        return [*others, *map(Outcome, members)]

    def _on_group(self, name: str, dn: str, action: DirectoryAction) -> Outcome:
        if action.effect is Effect.ADD:
            self._create(name)
        else:
            self._delete(dn)
        return Outcome(action)

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

    def _create(self, name: str) -> None:
        gid = self._ids.next_gid()
        attributes = {"cn": [name], "gidNumber": [str(gid)]}
        try:
            self._directory.add(
                self._directory.group_dn(name), self._settings.project_group_classes, attributes
            )
        except AlreadyThere as error:
            # Made since we looked: whether it is ours to fill, the next pass sees.
            raise BackendError(f"LDAP: there is a group {name} now; the next pass looks at it") from error

    def _delete(self, dn: str) -> None:
        try:
            self._directory.delete(dn)
        except NotThere:
            return

    def _obstacle(self, entry: Entry, people: set[str]) -> str:
        name, gid = entry.first("cn"), entry.number("gidNumber")
        if any(text.startswith(PERSONAL) for text in entry.all("description")) or name.lower() in people:
            return f"group {name} is the personal group of a user"
        if gid not in self._settings.gids:
            numbers = self._settings.gids
            return f"group {name} has the number {gid}, outside gid_range ({numbers.start} to {numbers.end})"
        return _host_problem(name)

    def _refusal(self, name: str, people: set[str]) -> str:
        """Why no group of this name may be made."""
        if name.lower() in people:
            return f"no group {name} can be made: a user has this name"
        problem = group_problem(name)
        return f"no group {name!r} can be made: {problem}" if problem else _host_problem(name)


def _host_problem(name: str) -> str:
    return f"group {name} is a group of the system on this host" if nss.is_system_group(name) else ""


def _group_of(action: DirectoryAction) -> str:
    """A group is named like its account."""
    return action.for_account


def _user_of(action: DirectoryAction) -> str:
    """Who joins or leaves the group; empty where it is about the group itself."""
    return action.ids().get("user", "")


def _member_changes(
    actions: Iterable[DirectoryAction],
) -> Mapping[str, list[tuple[str, list[str]]]]:
    listed = list(actions)
    added = [_user_of(action) for action in listed if action.effect is Effect.ADD]
    removed = [_user_of(action) for action in listed if action.effect is Effect.REMOVE]
    steps = [(DELETE, removed), (ADD, added)]
    return {"memberUid": [(how, users) for how, users in steps if users]}
