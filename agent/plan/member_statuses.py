# SPDX-License-Identifier: MIT
"""What is reported to Waldur of each member of a resource (8.1): whether the person can use the account.

person                                             reported
in the account                                     synced
out of it, and the cluster refuses the user        error, with its words
without a username, or with something to do        pending
with a name that is another person's there         pending
wanted, and not in the account                     pending
restricted, on the way out, resource is closed     nothing
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Set
from enum import StrEnum

from agent.core.account_names import fold
from agent.core.model import OfferingUser, Resource, TeamMember
from agent.core.waldur_actions import MemberStatus

NO_NAME = "no username yet"
TO_DO = "the person has something to do: {}"
NOT_YET = "not in the account yet"
TAKEN = "the name is another person's in the site's directory"


class SyncState(StrEnum):
    """How far a member is, as Waldur spells it."""

    SYNCED = "synced"
    PENDING = "pending"
    ERROR = "error"


def statuses(
    resource: Resource,
    team: Iterable[TeamMember],
    users: Mapping[str, OfferingUser],
    inside: Set[str],
    refused: Mapping[str, str],
) -> Iterator[MemberStatus]:
    """Yield one status for each person of the team who is wanted. `inside`: the account's users; `refused`: why the
    cluster does not take a user.
    """
    if resource.restrict_member_access:
        return
    for member in {each.user_uuid: each for each in team}.values():
        user = users.get(member.user_uuid)
        if user is not None and (user.is_restricted or user.is_on_the_way_out):
            continue
        name = fold(user.username if user is not None else member.username)
        waits_for = user.runtime_state if user is not None else ""
        if waits_for:
            state, message = SyncState.PENDING, TO_DO.format(waits_for)
        elif not name:
            state, message = SyncState.PENDING, NO_NAME
        elif user is not None and user.is_name_taken:
            state, message = SyncState.PENDING, TAKEN
        elif name in inside:
            state, message = SyncState.SYNCED, ""
        elif name in refused:
            state, message = SyncState.ERROR, refused[name]
        else:
            state, message = SyncState.PENDING, NOT_YET
        yield MemberStatus(member.user_uuid, name, member.role, state, message)


def text(status: MemberStatus) -> str:
    """Return what is remembered of it: the same text means that nothing is to be reported."""
    return json.dumps([status.role, status.state, status.message], ensure_ascii=False)
