# SPDX-License-Identifier: MIT
"""Everybody's roles in bulk: one listing for all projects of a provider, instead of a team per resource.

Sources: captures 282 and 283 of a server of 2024 (`field` is ignored there, only active grants are listed), and
the OpenAPI document of 8.0.5.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from sys import intern
from typing import Any

from agent.core.account_names import fold
from agent.core.errors import WaldurError
from agent.core.members import ProjectAccounts
from agent.core.model import Resource, TeamMember
from agent.waldur import members, offerings, pool, records
from agent.waldur.client import OLDEST_FIRST, WaldurClient

PROVIDERS = "marketplace-service-providers/"
LIMITS = "component-user-usage-limits/"
# Servers of 2024 send all fields. `created` distinguishes two grants of one role.
PERMISSION_FIELDS = ("user_uuid", "project_uuid", "role", "role_name", "created")
PERSON = ("uuid", "username", "email")
VALID_S = 3600.0
IN_USE, ENDED = "OK", "Closed"

Teams = Mapping[str, list[TeamMember]]
# Resource uuid -> offering user's uuid -> component -> limit as Waldur has it.
UserLimits = Mapping[str, Mapping[str, Mapping[str, object]]]


class KnownTeams:
    """Teams that were read by themselves, by project: they count while the listing of all says the same of the project,
    for VALID_S. Only what agreed with the listing when it was read is kept.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, frozenset[tuple[str, str]], Sequence[TeamMember]]] = {}

    def of(self, project: str, listed: Iterable[TeamMember]) -> Sequence[TeamMember] | None:
        """Return the team of a project, None where it is to be read."""
        read_s, grants, team = self._known.get(project, (-math.inf, frozenset(), ()))
        return team if time.monotonic() - read_s < VALID_S and grants == _grants(listed) else None

    def note(self, project: str, listed: Iterable[TeamMember], team: Sequence[TeamMember]) -> None:
        self._known.pop(project, None)
        grants = _grants(listed)
        if {user for user, _ in grants} == {member.user_uuid for member in team}:
            self._known[project] = time.monotonic(), grants, team

    def clear(self) -> None:
        self._known.clear()


def _grants(team: Iterable[TeamMember]) -> frozenset[tuple[str, str]]:
    return frozenset((member.user_uuid, member.role) for member in team)


def provider_uuid(client: WaldurClient, customer_uuid: str) -> str:
    """Return an organization's service provider; empty where the token sees none."""
    params = [("customer_uuid", customer_uuid), ("field", "uuid")]
    return next((records.uuid(item, "a provider") for item in client.pages(PROVIDERS, params)), "")


def person_uuid(client: WaldurClient, resource: Resource, wanted: str) -> str:
    """Return whose login or e-mail in Waldur this is: of the resource's team, else of all who use the provider; empty
    where neither has it. Offering users need not show either. Raises WaldurError.
    """
    name = fold(wanted)
    team = f"marketplace-provider-resources/{resource.uuid}/team/"
    if found := _named(client.pages(team, is_paged=False), name):
        return found
    try:
        provider = provider_uuid(client, offerings.facts(client).customer_uuid)
        users = client.pages(f"{PROVIDERS}{provider}/users/", [("field", each) for each in PERSON])
        return _named(users, name) if provider else ""
    except WaldurError as error:
        if error.status not in (403, 404, 405):
            raise
        return ""


def _named(people: Iterable[Mapping[str, Any]], name: str) -> str:
    return next(
        (
            records.uuid(item, "a person")
            for item in people
            if name in (fold(str(item.get("username") or "")), fold(str(item.get("email") or "")))
        ),
        "",
    )


def of_projects(client: WaldurClient, provider: str) -> Teams:
    """Return people with a role by project uuid, for all projects that the provider serves. Raises WaldurError, with
    403 where the token may not see them all.
    """
    found: dict[str, dict[str, TeamMember]] = defaultdict(dict)
    params = [("field", name) for name in PERMISSION_FIELDS]
    for item in client.pages(f"{PROVIDERS}{provider}/project_permissions/", params, order=OLDEST_FIRST):
        user = intern(records.uuid(item, "a permission", "user_uuid"))
        role = intern(str(item.get("role_name") or item.get("role") or ""))
        found[intern(records.uuid(item, "a permission", "project_uuid"))][user] = TeamMember(user, role=role)
    return {project: list(team.values()) for project, team in found.items()}


def of_resources(
    client: WaldurClient, resources: Iterable[str]
) -> Mapping[str, list[TeamMember] | WaldurError]:
    """Return the team of each of these resources, several at a time; what failed as the error."""
    return pool.each(resources, lambda uuid: members.team(client, uuid))


def accounts_of_projects(client: WaldurClient) -> Mapping[str, ProjectAccounts]:
    """Return service and course accounts by project uuid; empty on servers without them. Raises WaldurError."""
    active: dict[str, set[str]] = defaultdict(set)
    in_transition: dict[str, set[str]] = defaultdict(set)
    ended: dict[str, set[str]] = defaultdict(set)
    for item in members.listed_accounts(client):
        state, name = item.get("state"), item.get("username")
        if isinstance(name, str) and name:
            kind = {IN_USE: active, ENDED: ended}.get(str(state), in_transition)
            kind[records.hex_text(item, "project_uuid")].add(name)
    return {
        project: ProjectAccounts(
            frozenset(active[project]), frozenset(in_transition[project]), frozenset(ended[project])
        )
        for project in {*active, *in_transition, *ended}
    }


def user_limits(client: WaldurClient) -> UserLimits | None:
    """Return limits of single users, by resource and offering user; None where the server has no such limits."""
    found: dict[str, dict[str, dict[str, object]]] = defaultdict(lambda: defaultdict(dict))
    listing = members.if_there(
        client, "component-user-usage-limits", LIMITS, [("offering_uuid", client.offering_uuid)]
    )
    if listing is None:
        return None
    for item in listing:
        place = found[records.last_part(item.get("resource"))][records.last_part(item.get("user"))]
        place[str(item.get("component_type") or "")] = item.get("limit")
    return found
