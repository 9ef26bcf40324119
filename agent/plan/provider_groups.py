# SPDX-License-Identifier: MIT
"""The groups that Waldur has for projects (provider project groups): names, numbers and members are Waldur's. Pure.

in the directory                                action
no group; name and number are free              CreateGroup, AddToGroup
no group; name or number belongs to another     none: reported
a group with this number                        AddToGroup, RemoveFromGroup (not with add_only)
a group with another number                     the members, and: reported, or AdoptGroupNumber (site's choice)
a group of a person, or of the system           none: reported
no number in Waldur                             none: reported
an entry that lists groups                      ListGroup, DelistGroup: whose project has resources at its offerings

No group is deleted and no number is chosen here. A DN that is not of a group of Waldur's stays where it is listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from agent.core.account_names import fold
from agent.core.directory import (
    DirectoryGroup,
    GroupParent,
    ProviderGroup,
    ProviderGroupRules,
    SeenProviderGroups,
)
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
from agent.core.model import OfferingUser
from agent.core.printable import shortlist
from agent.core.system_users import is_system_number

WHY = "Waldur has it so"
EMPTY = "Waldur lists no project groups of the provider: those of the directory are left as they are"
UNKNOWN_OFFERINGS = (
    "Waldur does not say where these have resources, so lists of groups are left as they are for them"
)
SLUG = "{slug}"
LISTED = 5


@dataclass(frozen=True, slots=True)
class DirectoryNames:
    """All users of the offering, with the names that the directory has."""

    users: Sequence[OfferingUser]
    # Why it has others that are unknown, and so no member leaves a group, empty where they are known.
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class PlannedGroups:
    """What is done about the groups of the provider's projects."""

    actions: tuple[DirectoryAction, ...] = ()
    # What an operator must look at, in words; nothing is done about it.
    problems: tuple[str, ...] = ()


def changes(
    groups: Sequence[ProviderGroup],
    seen: SeenProviderGroups,
    rules: ProviderGroupRules,
    offering_uuid: str,
    unclear: Set[str] = frozenset(),
) -> PlannedGroups:
    """Return what makes the directory as Waldur has the groups. `unclear`: usernames whose entry may be another
    else's; they join no group, and leave none.
    """
    if not groups:
        return PlannedGroups(problems=(EMPTY,))
    actions: list[DirectoryAction] = []
    problems: list[str] = []
    # By name: a group that is there or will be, one that cannot be; not in it: nothing is known.
    is_written: dict[str, bool] = {}
    names = Counter(fold(group.name) for group in groups)
    numbers = Counter(group.gid for group in groups if group.gid is not None)
    for group in sorted(groups, key=lambda group: group.name):
        standing = seen.groups.get(group.name)
        if group.gid is None:
            problems.append(f"group {group.name}: Waldur has no number for it yet; it is skipped")
            continue
        obstacle = _obstacle(group, group.gid, standing, seen)
        if names[fold(group.name)] > 1 or numbers[group.gid] > 1:
            obstacle = "Waldur has several groups of its name or number"
        is_written[group.name] = not obstacle
        if obstacle:
            problems.append(f"group {group.name}: {obstacle}; nothing is written for it")
            continue
        if standing is None:
            actions.append(CreateGroup(group=group.name, gid=group.gid, reason=WHY))
        elif standing.gid != group.gid:
            found = _other_number(group.name, standing.gid, group.gid, seen, rules)
            actions += found.actions
            problems += found.problems
        members = _members(group, standing, seen, rules, unclear)
        actions += [*members.actions, *_described(group, seen, rules)]
        problems += members.problems
    unknown = [group.name for group in groups if group.offerings is None]
    if unknown and rules.parents:
        problems.append(f"{UNKNOWN_OFFERINGS}: {shortlist(sorted(unknown), LISTED)}")
    for parent in rules.parents:
        listed = seen.parents.get(parent.dn)
        if listed is None:
            problems.append(f"there is no entry {parent.dn} to list groups in: check project_groups.parents")
        else:
            actions += _listing(groups, is_written, listed, parent, offering_uuid)
    return PlannedGroups(tuple(actions), tuple(problems))


def possibly_renamed(
    groups: Sequence[ProviderGroup], seen: SeenProviderGroups, users: Iterable[OfferingUser]
) -> frozenset[str]:
    """Return the members of the directory's groups who may be a member whose name there is not known: no other user has
    their name in Waldur. `users`: all of the offering.
    """
    names = {fold(user.username): user.directory_name for user in users if user.username}
    standing = (
        seen.groups[group.name]
        for group in groups
        if group.name in seen.groups and any(names.get(fold(name), "") is None for name in group.members)
    )
    return frozenset(name for each in standing for name in each.members if fold(name) not in names)


def _obstacle(
    group: ProviderGroup, gid: int, standing: DirectoryGroup | None, seen: SeenProviderGroups
) -> str:
    """Return why nothing can be written for a group, in words; empty where something may be."""
    if obstacle := seen.obstacles.get(group.name):
        return obstacle
    if is_system_number(gid):
        return f"Waldur has the number {gid} for it, which belongs to the system"
    if standing is None and group.name in seen.elsewhere:
        return f"a group of this name stands at {seen.elsewhere[group.name]}"
    if standing is None and (holders := seen.holders.get(gid)):
        return f"its number {gid} belongs to {shortlist(holders, LISTED)}"
    if standing is not None and standing.gid is not None and is_system_number(standing.gid):
        return f"it has the number {standing.gid} there, which belongs to the system"
    return ""


def _other_number(
    name: str, now: int | None, gid: int, seen: SeenProviderGroups, rules: ProviderGroupRules
) -> PlannedGroups:
    words = f"group {name}: it has the number {now or 'none'} there, and {gid} in Waldur"
    if not rules.adopts:
        return PlannedGroups(problems=(words,))
    if now is None:
        return PlannedGroups(problems=(f"{words}; nothing is done about one without a number",))
    if holders := seen.holders.get(gid):
        return PlannedGroups(problems=(f"{words}, which belongs to {shortlist(holders, LISTED)}",))
    return PlannedGroups((AdoptGroupNumber(group=name, before=now, after=gid, reason=WHY),))


def _members(
    group: ProviderGroup,
    standing: DirectoryGroup | None,
    seen: SeenProviderGroups,
    rules: ProviderGroupRules,
    unclear: Set[str],
) -> PlannedGroups:
    """Plan who joins and leaves. Who has no entry yet, where one is needed, joins when it is there."""
    present = standing.members if standing else frozenset()
    refused = sorted(group.members & seen.refused.keys())
    ready = {
        name
        for name in group.members - seen.refused.keys() - unclear
        if seen.people is None or name in seen.people
    }
    actions: list[DirectoryAction] = [
        AddToGroup(group=group.name, user=user, reason="member of the project")
        for user in sorted(ready - present)
    ]
    if not rules.is_add_only:
        belong = set(map(fold, group.members))
        actions += [
            RemoveFromGroup(group=group.name, user=user, reason="not a member of the project")
            for user in sorted(present)
            if fold(user) not in belong and user not in unclear
        ]
    problems = [f"group {group.name}: {name} cannot be a member: {seen.refused[name]}" for name in refused]
    return PlannedGroups(tuple(actions), tuple(problems))


def _described(
    group: ProviderGroup, seen: SeenProviderGroups, rules: ProviderGroupRules
) -> Iterator[DescribeGroup]:
    """Yield the change of the description that names the project's organization. A project that is gone has none."""
    if not rules.description or not group.organization:
        return
    before, _, after = rules.description.partition(SLUG)
    wanted = rules.description.replace(SLUG, group.organization)
    present = seen.descriptions.get(group.name, ())
    # Without a word around the slug, whose description it is is unknown.
    own = [
        text
        for text in present
        if (before or after) and text.startswith(before) and text.endswith(after) and text != wanted
    ]
    if wanted not in present or own:
        yield DescribeGroup(group=group.name, before=tuple(sorted(own)), after=wanted, reason=WHY)


def _listing(
    groups: Sequence[ProviderGroup],
    is_written: Mapping[str, bool],
    listed: Set[str],
    parent: GroupParent,
    offering_uuid: str,
) -> Iterator[DirectoryAction]:
    """Yield what makes an entry list the groups whose project has resources at its offerings, and no others."""
    offerings = parent.offerings or {offering_uuid}
    for group in sorted(groups, key=lambda group: group.name):
        if group.name not in is_written or group.offerings is None:
            continue
        is_wanted = is_written[group.name] and not offerings.isdisjoint(group.offerings)
        if is_wanted and group.name not in listed:
            yield ListGroup(group=group.name, parent=parent.dn, reason="its project has resources here")
        elif not is_wanted and group.name in listed:
            members = tuple(sorted(group.members))
            yield DelistGroup(
                group=group.name, parent=parent.dn, members=members, reason="it does not belong there"
            )
