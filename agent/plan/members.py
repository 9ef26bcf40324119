# SPDX-License-Identifier: MIT
"""Who belongs into an account: the team of its project by their names on the cluster, and accounts without a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from agent.core.account_names import fold
from agent.core.members import NOBODY, DesiredMembers, ProjectAccounts
from agent.core.model import OfferingUser, TeamMember


def desired_members(
    team: Iterable[TeamMember],
    users: Mapping[str, OfferingUser],
    accounts: ProjectAccounts | None,
    *,
    restricted: bool,
    known: frozenset[str] = frozenset(),
    departing: Set[str] = frozenset(),
) -> DesiredMembers:
    """Return the desired members of one resource. `users` by user uuid; `accounts` None where they could not be read;
    `known`: all names that somebody has at the offering; `departing`: offering users who are to leave now.

    `restricted` resources (`restrict_member_access`) have no people in them, only accounts without a person.
    Users whom the provider restricted are not added; where they are in, that is left to the provider. So are those
    whose deletion Waldur wants, until they are `departing`, and those whose name is somebody else's in the site's
    directory: that one would get in. Whose name there is not known joins under that of Waldur, and keeps what they may
    have under another one.
    """
    names = {}
    blocked, gone = set(), set()
    for member in team:
        user = users.get(member.user_uuid)
        if user is not None and user.uuid in departing:
            gone.add(member.user_uuid)
        elif user is not None and user.may_only_stay:
            blocked.add(member.user_uuid)
        names[member.user_uuid] = fold(user.username if user is not None else member.username)
    out = blocked | gone
    wanted = set() if restricted else {name for uuid, name in names.items() if name and uuid not in out}
    active, unsettled, ended = (
        (accounts.active, accounts.unsettled, accounts.ended) if accounts else (frozenset(),) * 3
    )
    # Where no people belong in, nobody's name is waited for.
    nameless = 0 if restricted else sum(not name for uuid, name in names.items() if uuid not in gone)
    renamed = [] if restricted else _possible_names(names.keys() - gone, users)
    kept = ({names[uuid] for uuid in blocked} | set(map(fold, unsettled.union(*renamed)))) - {""}
    return DesiredMembers(
        wanted=frozenset(wanted | set(map(fold, active))),
        kept=frozenset(kept) if kept else NOBODY,
        nameless=nameless,
        complete=accounts is not None,
        # Without closed accounts all resources share one set.
        known=known.union(map(fold, ended)) if ended else known,
        renamed=len(renamed),
    )


def _possible_names(team: Iterable[str], users: Mapping[str, OfferingUser]) -> list[frozenset[str]]:
    """Return what each member, by user uuid, may be called whose name in the site's directory nobody knows."""
    found = (users.get(uuid) for uuid in team)
    return [user.possible_names for user in found if user is not None and user.directory_name is None]
