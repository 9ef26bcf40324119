# SPDX-License-Identifier: MIT
"""Groups of the directory that Waldur has for projects: read together, made with Waldur's numbers, filled, and listed
in other entries.

Entries are known by the DN under which they were found, also below `project_groups.ou`. A group is never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from agent.core.account_names import fold
from agent.core.directory import DirectoryGroup, ProviderGroup, ProviderGroupRules, SeenProviderGroups
from agent.core.directory_actions import (
    AddToGroup,
    AdoptGroupNumber,
    CreateGroup,
    DelistGroup,
    DescribeGroup,
    DirectoryAction,
    ListGroup,
    RemoveFromGroup,
)
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.plans import Outcome
from backends.usernames import nss
from backends.usernames.candidates import group_problem, posix_problem
from backends.usernames.ldap.directory import (
    ADD,
    DELETE,
    REPLACE,
    AlreadyThere,
    Directory,
    LdapEntry,
    NotThere,
    any_of,
    name_of,
    normal,
)
from backends.usernames.ldap.group_by_group import group_by_group
from backends.usernames.ldap.groups import DNS, GroupWriter
from backends.usernames.ldap.project_groups import PERSONAL
from backends.usernames.ldap.provider_group_schema import ProviderGroupSettings
from backends.usernames.ldap.schema import LdapSettings
from backends.usernames.ldap.user_reader import UserReader

ATTRIBUTES = ("cn", "gidNumber", "memberUid", "member", "description", "objectClass")


class ProviderGroups:
    """Reads and changes groups over one connection, from `open` to `close`."""

    def __init__(self, settings: LdapSettings, groups: ProviderGroupSettings) -> None:
        self._settings = settings
        self._groups = groups
        self._directory = Directory(settings)
        self._reader = UserReader(self._directory, settings)
        self._writer = GroupWriter(self._directory, settings)
        # As they were read: the DNs of groups and people by name, and of members by group and name.
        self._dns: dict[str, str] = {}
        self._people: dict[str, str] = {}
        self._members: dict[tuple[str, str], str] = {}

    def open(self) -> None:
        self._directory.open()

    def close(self) -> None:
        self._directory.close()

    @property
    def rules(self) -> ProviderGroupRules:
        return self._groups.rules

    def read(self, groups: Sequence[ProviderGroup]) -> SeenProviderGroups:
        """Return what the directory holds of these groups, and what is in their way. Raises BackendError; a part of
        the result is never taken for the whole.
        """
        names = [group.name for group in groups]
        below: dict[str, list[LdapEntry]] = {}
        for entry in self._found(self._groups.base, any_of("cn", names), ATTRIBUTES):
            below.setdefault(entry.first("cn").lower(), []).append(entry)
        here = {normal(entry.dn) for several in below.values() for entry in several}
        posix = (f"(&(objectClass=posixGroup){clauses})" for clauses in any_of("cn", names))
        elsewhere = {
            entry.first("cn").lower(): entry.dn
            for entry in self._found(self._settings.base_dn, posix, ("cn",))
            if normal(entry.dn) not in here
        }
        users = {
            entry.first("uid").lower()
            for entry in self._found(self._settings.base_dn, any_of("uid", names), ("uid",))
        }
        self._people = self._entries({member for group in groups for member in group.members})
        self._dns, self._members = {}, {}
        seen, obstacles, descriptions = {}, {}, {}
        for name in names:
            entries = below.get(name.lower(), [])
            is_there = bool(entries) or name.lower() in elsewhere
            if obstacle := _obstacle(name, entries, is_username=name.lower() in users, is_there=is_there):
                obstacles[name] = obstacle
            elif entries:
                seen[name] = self._group(name, entries[0])
                descriptions[name] = entries[0].all("description")
        return SeenProviderGroups(
            groups=seen,
            holders=self._holders(groups),
            elsewhere={name: elsewhere[name.lower()] for name in names if name.lower() in elsewhere},
            obstacles=obstacles,
            people=frozenset(self._people) if self._needs_entries else None,
            refused=_refused(groups),
            descriptions=descriptions,
            parents={parent.dn: self._listed(parent.dn, parent.attribute) for parent in self.rules.parents},
        )

    def apply(self, actions: Sequence[DirectoryAction]) -> list[Outcome]:
        """Carry the actions out. Return one outcome for each.

        An error fails what follows for its group; an outage fails all that follow.
        """
        return group_by_group(actions, self._changed)

    @property
    def _needs_entries(self) -> bool:
        return self._groups.attribute == DNS or self._settings.account_rules is not None

    def _found(self, base: str, filters: Iterable[str], attributes: Sequence[str]) -> Iterable[LdapEntry]:
        return chain.from_iterable(self._directory.search(base, clauses, attributes) for clauses in filters)

    def _entries(self, names: Iterable[str]) -> dict[str, str]:
        """Return the DNs of people's entries by name, where members need one: with a login, if entries carry it."""
        if not self._needs_entries:
            return {}
        login = self._settings.waldur_username_attribute
        needs_login = bool(login) and self._settings.account_rules is not None
        found = self._reader.named(names).items()
        return {name: entry.dn for name, entry in found if not needs_login or entry.first(login)}

    def _group(self, name: str, entry: LdapEntry) -> DirectoryGroup:
        self._dns[name] = entry.dn
        if self._groups.attribute != DNS:
            return DirectoryGroup(name, frozenset(entry.all("memberUid")), gid=entry.number("gidNumber"))
        names = {normal(dn): user for user, dn in self._people.items()}
        members = set()
        for dn in entry.all(DNS):
            user = names.get(normal(dn)) or name_of(dn, "uid")
            # Who is no user (the stand-in of an empty group, another group) is left alone.
            if user:
                members.add(user)
                self._members[name, user] = dn
        return DirectoryGroup(name, frozenset(members), gid=entry.number("gidNumber"))

    def _holders(self, groups: Sequence[ProviderGroup]) -> Mapping[int, tuple[str, ...]]:
        """Return the entries, and groups of this host, that have a group's number and are not that group, by number."""
        numbers = {group.gid: group.name for group in groups if group.gid is not None}
        found: dict[int, list[str]] = {}
        filters = any_of("gidNumber", map(str, numbers))
        for entry in self._found(self._settings.base_dn, filters, ("gidNumber",)):
            number = entry.number("gidNumber")
            own = self._dns.get(numbers[number]) if number in numbers else None
            if number is not None and number in numbers and (own is None or normal(own) != normal(entry.dn)):
                found.setdefault(number, []).append(entry.dn)
        for number, name in numbers.items():
            known = nss.group_of(number)
            if known is not None and fold(known) != fold(name):
                found.setdefault(number, []).append(f"group {known} of this host")
        return {number: tuple(sorted(dns)) for number, dns in found.items()}

    def _listed(self, dn: str, attribute: str) -> frozenset[str] | None:
        """Return which groups an entry lists, by name; None where there is no such entry."""
        try:
            entries = self._directory.search(dn, "(objectClass=*)", (attribute,))
        except BackendUnavailable as error:
            if isinstance(error.__cause__, NotThere):
                return None
            raise
        values = {normal(value) for e in entries if normal(e.dn) == normal(dn) for value in e.all(attribute)}
        return frozenset(name for name, group in self._dns.items() if normal(group) in values)

    def _changed(self, name: str, actions: Sequence[DirectoryAction]) -> list[Outcome]:
        """Change one group: made with the members that come with it, or changed step by step."""
        outcomes: list[Outcome] = []
        rest = list(actions)
        made = next((action for action in actions if isinstance(action, CreateGroup)), None)
        if made is not None:
            joining = [action for action in actions if isinstance(action, AddToGroup)]
            self._create(made, [action.user for action in joining])
            outcomes += map(Outcome, (made, *joining))
            rest = [action for action in actions if action is not made and action not in joining]
        dn = self._dns.get(name)
        for action in rest:
            error: BackendError | None = None
            try:
                if dn is None:
                    raise BackendError(f"LDAP: there is no group {name} below {self._groups.base}")
                self._carry_out(action, dn)
            except BackendUnavailable:
                raise
            except BackendError as raised:
                error = raised
            outcomes.append(Outcome(action, error))
        # In the order of the request.
        return sorted(outcomes, key=lambda outcome: actions.index(outcome.action))

    def _carry_out(self, action: DirectoryAction, dn: str) -> None:
        attribute = self._groups.attribute
        match action:
            case AddToGroup():
                self._writer.join(dn, attribute, self._value(action.user))
            case RemoveFromGroup():
                value = self._members.get((action.group, action.user), action.user)
                self._writer.leave(dn, attribute, value)
            case AdoptGroupNumber():
                self._directory.modify(dn, {"gidNumber": [(REPLACE, [str(action.after)])]})
            case DescribeGroup():
                steps: list[tuple[Any, Sequence[str]]] = [(DELETE, [text]) for text in action.before]
                for step in (*steps, (ADD, [action.after])):
                    with suppress(AlreadyThere, NotThere):
                        self._directory.modify(dn, {"description": [step]})
            case ListGroup():
                self._writer.join(action.parent, self._attribute_of(action.parent), dn)
            case DelistGroup():
                self._writer.leave(action.parent, self._attribute_of(action.parent), dn)
            case _:
                raise BackendError(f"cannot {action.verb} here")

    def _attribute_of(self, parent_dn: str) -> str:
        return next((p.attribute for p in self.rules.parents if p.dn == parent_dn), DNS)

    def _value(self, user: str) -> str:
        """Return what stands for a member in a group. Raises BackendError where the person has no entry."""
        if self._groups.attribute != DNS:
            return user
        if user not in self._people:
            raise BackendError(f"LDAP: there is no entry of {user}")
        return self._people[user]

    def _create(self, action: CreateGroup, users: Sequence[str]) -> None:
        classes = self._groups.classes
        dn = f"{self._directory.group_rdn(action.group)},{self._groups.base}"
        attributes = {"cn": [action.group], "gidNumber": [str(action.gid)]}
        members = [self._value(user) for user in users]
        needs_member = self._groups.attribute == DNS and "groupofnames" in {
            word.casefold() for word in classes
        }
        if needs_member and not members:
            members = [self._settings.empty_member]
        attributes[self._groups.attribute] = members
        try:
            self._directory.add(dn, classes, attributes)
        except AlreadyThere as error:
            raise BackendError(
                f"LDAP: there is an entry {dn} now, or one that is no group; the next pass looks at it"
            ) from error
        self._dns[action.group] = dn


def _obstacle(name: str, entries: Sequence[LdapEntry], *, is_username: bool, is_there: bool) -> str:
    """Return why a group of this name must be left alone, or not be made; empty where it may. `is_there`: the directory
    has one.
    """
    if problem := group_problem(name):
        return f"no group can have this name: {problem}"
    if nss.is_system_group(name):
        return "a group of the system on this host has its name"
    if len(entries) > 1:
        return f"several entries have its name: {', '.join(sorted(entry.dn for entry in entries))}"
    if is_username:
        return "a user has its name"
    if any(text.startswith(PERSONAL) for entry in entries for text in entry.all("description")):
        return f"{entries[0].dn} is the personal group of a user"
    if entries and entries[0].number("gidNumber") is None:
        return f"{entries[0].dn} is no group with a number"
    if not is_there and (number := nss.gid_of(name)) is not None:
        return f"this host has a group of its name, with the number {number}"
    return ""


def _refused(groups: Sequence[ProviderGroup]) -> Mapping[str, str]:
    """Return the members that no group may have, with the reason."""
    found = {}
    for name in {member for group in groups for member in group.members}:
        problem = posix_problem(name) or (
            "it is an account of the system here" if nss.is_system_user(name) else ""
        )
        if problem:
            found[name] = problem
    return found
