# SPDX-License-Identifier: MIT
"""The groups of allocations in the site's directory: one for each account, with the account's members in it.

wanted      there     action
a group     none      CreateGroup
a member    none      AddToGroup
(none)      a member  RemoveFromGroup, where the account's members are known completely
(ended)     a group   DeleteGroup, for accounts that are named as ended

Groups of any other name do not appear here, and a group with an obstacle is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from agent.core.directory import DirectoryGroup
from agent.core.directory_actions import (
    AddToGroup,
    CreateGroup,
    DeleteGroup,
    DirectoryAction,
    RemoveFromGroup,
)


@dataclass(frozen=True, slots=True)
class DesiredGroups:
    """Who shall be in the group of each account."""

    # Usernames by account.
    members: Mapping[str, Set[str]]
    # The accounts of which no member is missing there, so that who is not named may go.
    complete: Set[str] = frozenset()
    # Accounts that are gone, whose groups go with them.
    ended: Set[str] = frozenset()
    # The only users who leave a group, None for everybody.
    known: Set[str] | None = None

    @property
    def users(self) -> frozenset[str]:
        """Return the members of all accounts."""
        return frozenset[str]().union(*self.members.values())

    def names(self) -> list[str]:
        """Return all accounts that are spoken of."""
        return sorted({*self.members, *self.ended})


def changes(
    desired: DesiredGroups, standing: Mapping[str, DirectoryGroup], reason: str = "member of the allocation"
) -> list[DirectoryAction]:
    """Return what makes the groups as desired; `standing` holds each group that exists under one of the names."""
    actions: list[DirectoryAction] = []
    for account in sorted(desired.members.keys() - desired.ended):
        group = standing.get(account)
        if group is not None and group.obstacle:
            continue
        wanted = desired.members[account]
        present = group.members if group else frozenset()
        if group is None:
            actions.append(CreateGroup(group=account, reason="the allocation has none"))
        actions += [AddToGroup(group=account, user=user, reason=reason) for user in sorted(wanted - present)]
        if account in desired.complete:
            gone = present - wanted if desired.known is None else (present - wanted) & desired.known
            actions += [
                RemoveFromGroup(group=account, user=user, reason="not a member of the allocation")
                for user in sorted(gone)
            ]
    actions += [
        DeleteGroup(group=account, reason="the allocation has ended")
        for account in sorted(desired.ended)
        if account in standing and not standing[account].obstacle
    ]
    return actions
