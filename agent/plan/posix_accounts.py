# SPDX-License-Identifier: MIT
"""How a directory follows the accounts that Waldur has: its usernames, numbers, homes and shells. Pure.

in the directory                              action
no entry; name, numbers and login are free    CreateUser
no entry; one has this login and number       RenameUser
no entry; another one has login or number     none: reported
an entry, a renaming was cut off              RenameUser
no entry; this host has the name or a number  none: reported
  for another user or group
an entry with another person's login          none: reported
an entry with a login of no user              UpdateProfile, where the number is right
an entry with other numbers                   none: reported, or AdoptNumbers where the site wants that
an entry that was disabled                    EnableUser, once the account is OK in Waldur
an entry with another home, shell, name ...   UpdateProfile
a home or shell that is not allowed here      none: reported, also of what else would be done for the person

What Waldur has no value for is left as it is. Two people with one username, number or login are both reported. Who has
no entry of Waldur's name may log in with an older one: the cluster keeps that, where it is known, and where it is not
no member is removed who may be that person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.core.account_names import fold
from agent.core.actions import Action
from agent.core.directory import AccountRules, DirectoryPeople, DirectoryUser, OnMismatch
from agent.core.directory_actions import (
    AdoptNumbers,
    CreateUser,
    DirectoryAction,
    EnableUser,
    RenameUser,
    UpdateProfile,
)
from agent.core.homes import home_name, home_problem
from agent.core.model import Deletion, OfferingUser, PosixAccount
from agent.core.system_users import is_system_number

WHY = "Waldur has it so"
NO_NUMBERS = (
    "Waldur reports no uidnumber and primarygroup of its users (servers do since 8.1), which account_source `waldur` "
    "needs: nothing is written to the directory"
)


@dataclass(frozen=True, slots=True)
class OldName:
    """What a person without an entry of Waldur's name has in the directory."""

    # Of the entry with their login, None where it is unknown which one is theirs.
    name: str | None
    # Names of entries that may be theirs.
    possible: frozenset[str] = frozenset()
    # Waldur's name is that of another person's entry, to whom Waldur gives another one.
    is_taken: bool = False


@dataclass(frozen=True, slots=True)
class PlannedPeople:
    """What is done about the users in the directory."""

    actions: tuple[DirectoryAction, ...] = ()
    # What an operator must look at, in words; nothing is done about it.
    problems: tuple[str, ...] = ()
    # Usernames whose entry does not agree with Waldur, so that it may be another person's, and names that people may
    # still have there.
    unclear: frozenset[str] = frozenset()
    # Of people, by uuid, until one of the actions gives them an entry.
    old_names: Mapping[str, OldName] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Person:
    """A user with numbers, where Waldur has some."""

    user: OfferingUser
    name: str
    uid: int | None
    gid: int | None
    # Of Waldur's name.
    entry: DirectoryUser | None
    # The entry is another person's.
    is_others: bool
    # All entries of another name that have the person's number or login.
    rivals: Sequence[DirectoryUser]
    # Rivals with the login, which show whose they are.
    mine: Sequence[DirectoryUser]
    # Another user after whom the home is named that Waldur has for the person.
    namesake: str = ""


def with_entries(users: Iterable[OfferingUser]) -> list[OfferingUser]:
    """Return the users who may have an entry. Those who may get one come last: of two with one name the directory makes
    these.
    """
    live, others = _by_right(users)
    return others + live


def _by_right(users: Iterable[OfferingUser]) -> tuple[list[OfferingUser], list[OfferingUser]]:
    """Return the users who have a name and may get an entry, and those who may only have one."""
    live: list[OfferingUser] = []
    others: list[OfferingUser] = []
    for user in sorted((user for user in users if user.username), key=lambda user: user.username):
        if not (user.is_restricted or user.is_on_the_way_out):
            live.append(user)
        elif user.state != Deletion.DELETED:
            others.append(user)
    return live, others


def changes(users: Sequence[OfferingUser], seen: DirectoryPeople, rules: AccountRules) -> PlannedPeople:
    """Return what makes the directory as Waldur has it. `users`: all of the offering. Whom the provider restricted, and
    who is to be deleted, keeps the entry as it is, and its name.
    """
    people, others = _by_right(users)
    shared = _shared(people)
    directory = _People([user for user in users if user.state != Deletion.DELETED], seen, rules)
    actions: list[DirectoryAction] = []
    problems: list[str] = []
    if people and all(user.posix is None for user in people):
        # One sentence for all of them.
        problems, rules = [NO_NUMBERS], replace(rules, skips_missing=True)
    unclear = set[str]()
    old_names: dict[str, OldName] = {}
    for user in people:
        person = directory.person(user)
        planned = _of_person(person, seen, rules, shared.get(user.uuid, ""))
        old = directory.old_name(person)
        if old is not None:
            old_names[user.key] = old
        actions += planned.actions
        problems += [f"{words}{_consequence(old)}" for words in planned.problems]
        unclear |= planned.unclear
    for user in others:
        old = directory.old_name(directory.person(user))
        # They need no entry: that there is none says nothing of them.
        if old is None or not (old.name or old.possible or old.is_taken):
            continue
        old_names[user.key] = old
        unclear |= old.possible | ({old.name} if old.name else set())
        if user.is_on_the_way_out and old.possible:
            problems.append(f"{user.username}: it is to be deleted, and {possible_entries(old.possible)}")
    return PlannedPeople(tuple(actions), tuple(problems), frozenset(unclear), old_names)


def _consequence(old: OldName | None) -> str:
    """Return how the cluster has a person who has an older name, in words; empty where there is nothing to say."""
    if old is not None and old.name:
        return f"; on the cluster it stays {old.name} until that is resolved"
    return "; no user joins an account under this name until that is resolved" if old and old.is_taken else ""


def possible_entries(names: Iterable[str]) -> str:
    """Return which entries may be of a person whose name in the directory is unknown, in words."""
    return f"it is unknown whether the entry of {', '.join(sorted(names))} is of the same person"


def as_in_directory(
    users: Iterable[OfferingUser], old_names: Mapping[str, OldName], happened: Iterable[Action]
) -> list[OfferingUser]:
    """Return the users, with the names that the directory has still for those who get no entry of Waldur's name by what
    has `happened`.
    """
    made = {action.user for action in happened if isinstance(action, CreateUser | RenameUser)}
    return [
        replace(user, directory_name=old.name, possible_names=old.possible, is_name_taken=old.is_taken)
        if user.username not in made and (old := old_names.get(user.key))
        else user
        for user in users
    ]


def as_before(users: Iterable[OfferingUser], before: Iterable[OfferingUser]) -> list[OfferingUser]:
    """Return the users as Waldur has them now, with the names that the directory had when one looked `before`."""
    looked_up = {user.key: user for user in before}
    found = []
    for user in users:
        known = looked_up.get(user.key, user)
        name = known.username if known.directory_name == "" else known.directory_name
        if name not in ("", user.username):
            possible, is_taken = known.possible_names, known.is_name_taken
            user = replace(user, directory_name=name, possible_names=possible, is_name_taken=is_taken)
        found.append(user)
    return found


def by_directory_name(users: Iterable[OfferingUser]) -> list[OfferingUser]:
    """Return the users under the names that the directory has."""
    return [replace(user, username=user.cluster_name) if user.directory_name else user for user in users]


def _shared(people: Sequence[OfferingUser]) -> dict[str, str]:
    """Return the problems of users who have a username, number or login of another person, by uuid."""
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


class _People:
    """Finds the entries of people, and whose they are."""

    def __init__(self, people: Sequence[OfferingUser], seen: DirectoryPeople, rules: AccountRules) -> None:
        self._rules = rules
        self._logins = Counter(user.waldur_username for user in people)
        self._usernames = {(user.waldur_username, fold(user.username)) for user in people}
        self._names = {user.username for user in people} | seen.host_uids.keys()
        self._named = {entry.name: entry for entry in seen.entries}
        # As the cluster spells it.
        self._folded = {fold(entry.name): entry for entry in seen.entries}
        self._numbered: dict[int, list[DirectoryUser]] = {}
        self._of_login: dict[str, list[DirectoryUser]] = {}
        for entry in seen.entries:
            if entry.uid is not None:
                self._numbered.setdefault(entry.uid, []).append(entry)
            if rules.has_login and entry.login:
                self._of_login.setdefault(entry.login, []).append(entry)

    def person(self, user: OfferingUser) -> _Person:
        """Return a user with the entries that may be theirs."""
        posix, entry = user.posix or PosixAccount(), self._named.get(user.username)
        numbered = self._numbered.get(posix.uid, []) if posix.uid is not None else []
        mine = [e for e in self._of_login.get(user.waldur_username, ()) if e.name != user.username]
        is_others = False
        if entry is not None and self._rules.has_login and entry.login not in ("", user.waldur_username):
            is_others = entry.uid != posix.uid or entry.login in self._logins
        rivals = [*mine, *(e for e in numbered if e.name != user.username and e not in mine)]
        namesake = home_name(posix.home)
        own = {user.username, *(each.name for each in mine)}
        if namesake in own or (namesake not in self._names and namesake not in self._named):
            namesake = ""
        return _Person(user, user.username, posix.uid, posix.gid, entry, is_others, rivals, mine, namesake)

    def old_name(self, person: _Person) -> OldName | None:
        """Return the name that the person has in the directory; None where that is Waldur's.

        An entry of Waldur's name with other numbers, or a login that no user has, is the person's, as long as no other
        entry may be.
        """
        entry, login = person.entry, person.user.waldur_username
        if entry is not None and not self._is_of_another(entry, login):
            is_proven = entry in self._of_login.get(login, ()) or entry.uid == person.uid is not None
            if is_proven or not person.rivals:
                return None
        if len(person.mine) == self._logins[login] == 1:
            return OldName(person.mine[0].name)
        possible = (rival.name for rival in person.rivals if not self._is_of_another(rival, login))
        return OldName(None, frozenset(possible), self._is_taken(fold(person.name), login))

    def _is_taken(self, name: str, login: str) -> bool:
        """Return whether the entry of a name carries the login of another user, whom Waldur calls otherwise."""
        entry = self._folded.get(name)
        return (
            entry is not None
            and self._is_of_another(entry, login)
            and (entry.login, name) not in self._usernames
        )

    def _is_of_another(self, entry: DirectoryUser, login: str) -> bool:
        """Return whether the entry carries the login of another user of Waldur."""
        return self._rules.has_login and entry.login not in ("", login) and entry.login in self._logins


def _of_person(person: _Person, seen: DirectoryPeople, rules: AccountRules, shared: str) -> PlannedPeople:
    """Plan one person. `shared`: what the person has in Waldur that another user has, too, in words."""
    name, uid, gid = person.name, person.uid, person.gid
    if uid is None or gid is None:
        words = "" if rules.skips_missing else "Waldur has no uidnumber or primarygroup for it"
        return _problem(person, words)
    if is_system_number(uid) or is_system_number(gid):
        return _problem(person, f"Waldur has uid {uid} and gid {gid}, which belong to the system")
    if obstacle := seen.obstacles.get(name) or shared:
        return _problem(person, obstacle)
    if person.entry is None:
        return _new(person, uid, gid, seen, rules)
    if person.entry.renamed_from:
        rename = RenameUser(before=person.entry.renamed_from, user=name, reason="it was cut off")
        return PlannedPeople((rename,), unclear=frozenset({rename.before, name}))
    if person.is_others:
        return _problem(
            person, f"the entry carries the login {person.entry.login}, and belongs to another person"
        )
    return _standing(person, person.entry, (uid, gid), seen, rules)


def _standing(
    person: _Person,
    entry: DirectoryUser,
    numbers: tuple[int, int],
    seen: DirectoryPeople,
    rules: AccountRules,
) -> PlannedPeople:
    """Plan for a person with an entry of this name. `numbers`: uid and gid in Waldur."""
    name = person.name
    actions: list[DirectoryAction] = []
    unclear: frozenset[str] = frozenset()
    if (entry.uid, entry.gid) != numbers:
        uid, gid = numbers
        words = f"it has {entry.uid}:{entry.gid} there, and {uid}:{gid} in Waldur (uid and gid)"
        if rules.on_mismatch is not OnMismatch.ADOPT:
            return _problem(person, words)
        if entry.uid is None or entry.gid is None:
            return _problem(person, f"{words}; it has no number")
        if is_system_number(entry.uid):
            return _problem(person, f"{words}; {entry.uid} belongs to the system, so it is no person's entry")
        if held := _held(person) or _held_group(person, seen, rules) or _held_on_host(person, seen, rules):
            return _problem(person, f"{words}; {held}")
        before = (entry.uid, entry.gid)
        actions.append(AdoptNumbers(user=name, before=before, after=numbers, reason=WHY))
        unclear = frozenset({name})
    if refused := _refused_values(person, entry, rules):
        is_theirs = not actions and not person.rivals
        return PlannedPeople(problems=(f"{name}: {refused}",)) if is_theirs else _problem(person, refused)
    if entry.is_parked and person.user.may_use:
        shell = person.user.posix.shell if person.user.posix else ""
        actions.append(EnableUser(user=name, shell=shell, reason="the person has come back"))
    if stale := seen.stale.get(name):
        actions.append(UpdateProfile(user=name, changes=stale, reason=WHY))
    return PlannedPeople(tuple(actions), unclear=unclear)


def _new(person: _Person, uid: int, gid: int, seen: DirectoryPeople, rules: AccountRules) -> PlannedPeople:
    """Plan for a person without an entry of this name."""
    old = person.mine[0] if len(person.rivals) == len(person.mine) == 1 else None
    if refused := _refused_values(person, old, rules):
        return _problem(person, refused)
    if old is not None and old.uid == uid:
        if held := _held_name(person, seen):
            return _problem(person, held)
        rename = RenameUser(before=old.name, user=person.name, reason=WHY)
        return PlannedPeople((rename,), unclear=frozenset({rename.before, rename.user}))
    if person.rivals:
        return _problem(person, _held(person))
    for group, number in seen.groups if rules.personal_groups else ():
        if group == person.name and number != gid:
            return _problem(person, f"its group has the number {number} there, and {gid} in Waldur")
    if (
        held := _held_group(person, seen, rules)
        or _held_name(person, seen)
        or _held_on_host(person, seen, rules)
    ):
        return _problem(person, held)
    return PlannedPeople((CreateUser(user=person.name, uid=uid, gid=gid, reason=WHY),))


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


def _held_name(person: _Person, seen: DirectoryPeople) -> str:
    """Return which number this host has for the person's name, in words, where it is another one."""
    known = seen.host_uids.get(person.name)
    return f"this host knows a user {person.name} with uid {known}" if known not in (None, person.uid) else ""


def _held_on_host(person: _Person, seen: DirectoryPeople, rules: AccountRules) -> str:
    """Return whom this host knows under the numbers that the person would get, in words. A group of the person's name
    is theirs where the directory has it, or where this host has a user of that name; others of the directory are where
    people share groups.
    """
    user = seen.host_users.get(person.uid, person.name) if person.uid is not None else person.name
    if user != person.name:
        return f"uid {person.uid} is that of user {user} on this host"
    group = seen.host_groups.get(person.gid) if person.gid is not None else None
    is_named_so = group == person.name
    is_of_directory = (group, person.gid) in seen.groups and (is_named_so or not rules.personal_groups)
    if group is None or is_of_directory or (is_named_so and person.name in seen.host_uids):
        return ""
    return f"gid {person.gid} is that of group {group} on this host"


def _refused_values(person: _Person, entry: DirectoryUser | None, rules: AccountRules) -> str:
    """Return which home or shell of Waldur's is not written, in words. `entry`: the person's; what it has already is
    not written.
    """
    posix = person.user.posix or PosixAccount()
    if posix.home and (entry is None or posix.home != entry.home):
        namesake = f"it is named after user {person.namesake}" if person.namesake else ""
        if problem := home_problem(posix.home, rules.home_bases) or namesake:
            return f"Waldur has the home {posix.home!r}, and {problem}"
    if (
        posix.shell
        and (entry is None or posix.shell != entry.shell)
        and posix.shell not in rules.login_shells
    ):
        return f"Waldur has the shell {posix.shell!r}, which is none of those of this site (login_shells)"
    return ""


def _problem(person: _Person, words: str) -> PlannedPeople:
    """Plan nothing for a person; without `words` there is no problem either."""
    unclear = frozenset({person.name, *(rival.name for rival in person.rivals)})
    return PlannedPeople(problems=(f"{person.name}: {words}",) if words else (), unclear=unclear)
