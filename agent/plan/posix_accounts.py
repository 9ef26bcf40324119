# SPDX-License-Identifier: MIT
"""How a directory follows the accounts that Waldur has: its usernames, numbers, homes and shells. Pure.

in the directory                              action
no entry; name, numbers and login are free    CreateUser
no entry; one has this login and number       RenameUser
no entry; another one has login or number     none: told
an entry, a renaming was cut off              RenameUser
an entry with another person's login          none: told (number right and nobody's login: UpdateProfile)
an entry with other numbers                   none: told, or AdoptNumbers where the site wants that
an entry that was disabled                    EnableUser, once the account is OK in Waldur
an entry with another home, shell, name ...   UpdateProfile

What Waldur has no value for is left as it is. Two people with one username, number or login are told of, both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from agent.core.directory import AccountRules, DirectoryPeople, DirectoryUser, OnMismatch
from agent.core.directory_actions import (
    AdoptNumbers,
    CreateUser,
    DirectoryAction,
    EnableUser,
    RenameUser,
    UpdateProfile,
)
from agent.core.model import OfferingUser, PosixAccount
from agent.core.system_users import is_system_number

WHY = "Waldur has it so"
NOTHING_SHOWN = (
    "Waldur shows no uidnumber and primarygroup of its users (servers do since 8.1), which account_source `waldur` "
    "needs: nothing is written to the directory"
)


@dataclass(frozen=True, slots=True)
class PlannedPeople:
    """`told`: what an operator must look at, in words; nothing is done about it. `unclear`: usernames whose entry does
    not agree with Waldur, so that it may be somebody else's, and old names of the renamed. `renames`: those of
    `actions` before which people log in with their old name.
    """

    actions: tuple[DirectoryAction, ...] = ()
    told: tuple[str, ...] = ()
    unclear: frozenset[str] = frozenset()
    renames: tuple[RenameUser, ...] = ()


@dataclass(frozen=True, slots=True)
class _Person:
    """A user with numbers. `rivals`: entries of another name, with the person's number or login."""

    user: OfferingUser
    name: str
    uid: int
    gid: int
    entry: DirectoryUser | None
    rivals: Sequence[DirectoryUser]


def live(users: Iterable[OfferingUser]) -> list[OfferingUser]:
    """Return the users who have a name, and may have an entry."""
    found = (u for u in users if u.username and not u.is_restricted and not u.is_on_the_way_out)
    return sorted(found, key=lambda user: user.username)


def changes(users: Iterable[OfferingUser], seen: DirectoryPeople, rules: AccountRules) -> PlannedPeople:
    """Return what makes the directory as Waldur has it."""
    people = live(users)
    if people and all(user.posix is None for user in people):
        return PlannedPeople(told=(NOTHING_SHOWN,), unclear=frozenset(user.username for user in people))
    shared = _shared(people)
    logins = frozenset(user.waldur_username for user in people)
    entries = {entry.name: entry for entry in seen.entries}
    actions: list[DirectoryAction] = []
    told: list[str] = []
    renames: list[RenameUser] = []
    unclear: set[str] = set()
    for user in people:
        name, posix = user.username, user.posix or PosixAccount()
        if posix.uid is None or posix.gid is None:
            unclear.add(name)
            if not rules.skips_missing:
                told.append(f"{name}: Waldur has no uidnumber or primarygroup for it")
        elif is_system_number(posix.uid) or is_system_number(posix.gid):
            unclear.add(name)
            told.append(f"{name}: Waldur has uid {posix.uid} and gid {posix.gid}, which belong to the system")
        elif obstacle := seen.obstacles.get(name) or shared.get(user.uuid):
            unclear.add(name)
            told.append(f"{name}: {obstacle}")
        else:
            person = _Person(
                user, name, posix.uid, posix.gid, entries.get(name), _rivals(user, posix.uid, seen, rules)
            )
            planned = _of_person(person, seen, rules, logins)
            actions += planned.actions
            told += planned.told
            renames += planned.renames
            unclear |= planned.unclear
    return PlannedPeople(tuple(actions), tuple(told), frozenset(unclear), tuple(renames))


def not_renamed(users: Iterable[OfferingUser], renames: Iterable[RenameUser]) -> list[OfferingUser]:
    """Return the users, with the name that the directory still has for those whose renaming has not happened."""
    names = {action.user: action.before for action in renames}
    return [
        replace(user, directory_name=names[user.username]) if user.username in names else user
        for user in users
    ]


def by_directory_name(users: Iterable[OfferingUser]) -> list[OfferingUser]:
    """Return the users under the names that the directory has."""
    return [replace(user, username=user.directory_name) if user.directory_name else user for user in users]


def _shared(people: Sequence[OfferingUser]) -> dict[str, str]:
    """Return what is told of users who have a username, number or login of somebody else, by uuid."""
    keys = {
        user.uuid: {
            ("username", user.username),
            ("uidnumber", str(user.posix.uid) if user.posix and user.posix.uid is not None else ""),
            ("login", user.waldur_username),
        }
        for user in people
    }
    count = Counter(key for several in keys.values() for key in several)
    return {
        uuid: "several users in Waldur have the "
        + " and the ".join(f"{what} {value}" for what, value in sorted(twice))
        for uuid, several in keys.items()
        if (twice := {key for key in several if key[1] and count[key] > 1})
    }


def _rivals(user: OfferingUser, uid: int, seen: DirectoryPeople, rules: AccountRules) -> list[DirectoryUser]:
    """Return the entries of another name that have the person's number or login."""
    others = (entry for entry in seen.entries if entry.name != user.username)
    return [entry for entry in others if entry.uid == uid or _is_login(entry, user, rules)]


def _of_person(
    person: _Person, seen: DirectoryPeople, rules: AccountRules, logins: Set[str]
) -> PlannedPeople:
    entry, name = person.entry, person.name
    if entry is not None and entry.renamed_from:
        rename = RenameUser(before=entry.renamed_from, user=name, reason="it was cut off")
        return PlannedPeople((rename,), unclear=frozenset({rename.before, name}))
    if entry is None:
        return _new(person, seen, rules)
    is_others = bool(rules.has_login and entry.login) and entry.login != person.user.waldur_username
    if is_others and (entry.uid != person.uid or entry.login in logins):
        return _told(person, f"the entry carries the login {entry.login}, and belongs to somebody else")
    actions: list[DirectoryAction] = []
    unclear: frozenset[str] = frozenset()
    if (entry.uid, entry.gid) != (person.uid, person.gid):
        words = f"it has {entry.uid}:{entry.gid} there, and {person.uid}:{person.gid} in Waldur (uid and gid)"
        if rules.on_mismatch is not OnMismatch.ADOPT:
            return _told(person, words)
        if entry.uid is None or entry.gid is None:
            return _told(person, f"{words}; it has no number")
        if is_system_number(entry.uid):
            return _told(person, f"{words}; {entry.uid} belongs to the system, so it is no person's entry")
        if held := _held(person) or _held_group(person, seen, rules):
            return _told(person, f"{words}; {held}")
        before, after = (entry.uid, entry.gid), (person.uid, person.gid)
        actions.append(AdoptNumbers(user=name, before=before, after=after, reason=WHY))
        unclear = frozenset({name})
    if entry.is_parked and person.user.may_use:
        shell = person.user.posix.shell if person.user.posix else ""
        actions.append(EnableUser(user=name, shell=shell, reason="the person has come back"))
    if stale := seen.stale.get(name):
        actions.append(UpdateProfile(user=name, changes=stale, reason=WHY))
    return PlannedPeople(tuple(actions), unclear=unclear)


def _new(person: _Person, seen: DirectoryPeople, rules: AccountRules) -> PlannedPeople:
    """Plan for a person without an entry of this name."""
    mine = [entry for entry in person.rivals if _is_login(entry, person.user, rules)]
    if len(person.rivals) == len(mine) == 1 and mine[0].uid == person.uid:
        rename = RenameUser(before=mine[0].name, user=person.name, reason=WHY)
        return PlannedPeople((rename,), unclear=frozenset({rename.before, rename.user}), renames=(rename,))
    if person.rivals:
        return _told(person, _held(person))
    for group, gid in seen.groups if rules.personal_groups else ():
        if group == person.name and gid != person.gid:
            return _told(person, f"its group has the number {gid} there, and {person.gid} in Waldur")
    if held := _held_group(person, seen, rules):
        return _told(person, held)
    return PlannedPeople((CreateUser(user=person.name, uid=person.uid, gid=person.gid, reason=WHY),))


def _held(person: _Person) -> str:
    """Return who has the person's number or login, in words."""
    others = ", ".join(sorted(entry.name for entry in person.rivals))
    return f"the entry of {others} has its number {person.uid} or its login" if others else ""


def _held_group(person: _Person, seen: DirectoryPeople, rules: AccountRules) -> str:
    """Return which other group has the number that the person's would get, in words."""
    has_it = person.entry is not None and person.entry.gid == person.gid
    if not rules.personal_groups or has_it:
        return ""
    others = sorted(group for group, gid in seen.groups if gid == person.gid and group != person.name)
    return (
        f"the number {person.gid} of its group belongs to group {', '.join(others)} (people who share one: "
        "`personal_groups: false`)"
        if others
        else ""
    )


def _told(person: _Person, words: str) -> PlannedPeople:
    return PlannedPeople(told=(f"{person.name}: {words}",), unclear=frozenset({person.name}))


def _is_login(entry: DirectoryUser, user: OfferingUser, rules: AccountRules) -> bool:
    return rules.has_login and bool(entry.login) and entry.login == user.waldur_username
