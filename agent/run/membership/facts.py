# SPDX-License-Identifier: MIT
"""What Waldur says about the allocations of an offering, in bulk: lists whose number does not grow with resources.

Teams come from one listing of all project permissions of the provider. Where that is not allowed (403, or a
server without it), or where a single resource was asked about, from each resource's own team.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from agent.core.account_names import fold
from agent.core.errors import WaldurError
from agent.core.members import ProjectAccounts
from agent.core.model import (
    OfferingFacts,
    OfferingUser,
    OrderType,
    Resource,
    TeamMember,
)
from agent.core.policy import LimitsSource
from agent.plan.membership import MembershipRules
from agent.plan.shared_limits import LimitRules
from agent.run.membership import account_lists
from agent.run.site import Site, offering_rules
from agent.waldur import members, offerings, orders, resources, teams
from agent.waldur.client import WaldurClient
from agent.waldur.teams import Teams, UserLimits

log = logging.getLogger(__name__)

# How long what is true of the offering itself (its options, its provider) is taken as it was.
OFFERING_VALID_S = 600.0
BULK_TEAMS = "project_permissions"
# With these a resource has members of its own, fewer than its project (8.1).
NARROWING = ("enable_resource_projects",)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a pass is about: everything, or one resource or project that an event told of."""

    resource_uuid: str = ""
    project_uuid: str = ""

    @property
    def is_everything(self) -> bool:
        return not (self.resource_uuid or self.project_uuid)


@dataclass(frozen=True, slots=True)
class MembershipFacts:
    """`teams` by resource uuid, failed reads as the error. `accounts` None where they could not be read.

    `in_progress`: resources that an order is at work on.
    """

    offering: OfferingFacts
    resources: Sequence[Resource]
    in_progress: Sequence[Resource]
    users: Sequence[OfferingUser]
    teams: Mapping[str, Sequence[TeamMember] | WaldurError]
    accounts: Mapping[str, ProjectAccounts] | None
    orders: Mapping[str, frozenset[OrderType]]
    user_limits: UserLimits | None


@dataclass(frozen=True, slots=True)
class _Known:
    """What is true of the offering itself, asked for once in a while."""

    facts: OfferingFacts
    read_s: float
    providers: dict[str, str] = field(default_factory=dict)


_known: WeakKeyDictionary[WaldurClient, _Known] = WeakKeyDictionary()


def gather(site: Site, reach: Reach = Reach()) -> MembershipFacts:
    """Everything that a membership pass needs. Raises WaldurError where what concerns all resources is not readable.

    Orders before resources: one that ends in between has its limits in what is read of the resource.
    """
    client = site.client
    facts = _offering(client).facts
    under_way = _orders(client)
    listed = _resources(client, reach)
    found = [resource for resource in listed if resource.state in resources.HANDLED]
    users = members.offering_users(client, with_persons=site.offering.username_backend != "base")
    return MembershipFacts(
        offering=facts,
        resources=found,
        in_progress=[resource for resource in listed if resource.state in resources.IN_PROGRESS],
        users=users,
        teams=_teams(client, reach, found, users),
        accounts=_accounts(site),
        orders=under_way,
        user_limits=teams.user_limits(client),
    )


def _offering(client: WaldurClient) -> _Known:
    known = _known.get(client)
    if known is None or time.monotonic() - known.read_s > OFFERING_VALID_S:
        known = _known[client] = _Known(offerings.facts(client), time.monotonic())
    return known


def _resources(client: WaldurClient, reach: Reach) -> list[Resource]:
    fields = resources.SYNC_FIELDS
    if reach.resource_uuid:
        return [resources.get(client, reach.resource_uuid, fields=fields)]
    return resources.listed(
        client, (*resources.HANDLED, *resources.IN_PROGRESS), fields=fields, project_uuid=reach.project_uuid
    )


def _teams(
    client: WaldurClient, reach: Reach, found: Sequence[Resource], users: Iterable[OfferingUser]
) -> dict[str, Sequence[TeamMember] | WaldurError]:
    """Teams by resource, from one listing or one by one; both lead to the same plan.

    The listing does not tell the names of people whose account at the offering the token may not see, nor that a
    project has nobody left: those teams are asked for.
    """
    named = [resource for resource in found if resource.backend_id]
    narrowed = _is_narrowed(client)
    of_project = _bulk_teams(client) if reach.is_everything and named and not narrowed else None
    if of_project is None:
        return _single_teams(client, named, narrowed=narrowed)
    seen = {user.user_uuid for user in users}
    told = {
        project: team for project, team in of_project.items() if seen >= {member.user_uuid for member in team}
    }
    asked = [resource for resource in named if resource.project_uuid not in told]
    listed = {r.uuid: told[r.project_uuid] for r in named if r.project_uuid in told}
    return {**listed, **_single_teams(client, asked, narrowed=False)}


def people_again(site: Site, facts: MembershipFacts, concerned: Sequence[Resource]) -> MembershipFacts:
    """The facts with all that decides who belongs into these resources read once more. Raises WaldurError."""
    client = site.client
    users = members.offering_users(client, with_persons=site.offering.username_backend != "base")
    read = _single_teams(client, concerned, narrowed=_is_narrowed(client))
    return replace(facts, users=users, teams={**facts.teams, **read}, accounts=_accounts(site))


def _is_narrowed(client: WaldurClient) -> bool:
    return any(_offering(client).facts.plugin_options.get(option) for option in NARROWING)


def _single_teams(
    client: WaldurClient, named: Sequence[Resource], *, narrowed: bool
) -> dict[str, Sequence[TeamMember] | WaldurError]:
    """One request for each project; for each resource where these are `narrowed`."""
    place = {resource.uuid: resource.uuid if narrowed else resource.project_uuid for resource in named}
    asked = {place[resource.uuid]: resource.uuid for resource in named}
    answers = teams.of_resources(client, asked.values())
    return {resource.uuid: answers[asked[place[resource.uuid]]] for resource in named}


def _bulk_teams(client: WaldurClient) -> Teams | None:
    """Teams by project, None where this token or server has no such listing."""
    if not client.if_supported(BULK_TEAMS):
        return None
    known = _offering(client)
    try:
        if "provider" not in known.providers:
            known.providers["provider"] = teams.provider_uuid(client, known.facts.customer_uuid)
        provider = known.providers["provider"]
        return teams.of_projects(client, provider) if provider else None
    except WaldurError as error:
        if error.status not in (403, 404, 405):
            raise
        client.note_missing(BULK_TEAMS, error)
        return None


def sync_rules(site: Site, facts: MembershipFacts, *, silent: str = "") -> MembershipRules:
    """`silent`: an offering on the same cluster that has not told yet which accounts it names, empty for none."""
    offering = offering_rules(site, facts.offering)
    limits = LimitRules(
        offering.components,
        from_waldur=site.offering.limits_source is LimitsSource.WALDUR,
        periodic=site.offering.periodic_limits_enabled,
    )
    waiting = (
        f"offering {silent} on the same cluster has not told yet which accounts it names" if silent else ""
    )
    return MembershipRules(offering, limits, nobody_leaves=waiting)


def named_accounts(found: Iterable[Resource]) -> frozenset[str]:
    """The accounts that these resources name."""
    return frozenset(fold(resource.backend_id) for resource in found if resource.backend_id)


def limits_by_username(
    limits: Mapping[str, Mapping[str, object]], users: Iterable[OfferingUser]
) -> dict[str, dict[str, Any]] | None:
    """A resource's limits of single users by their names on the cluster; who has no name here is left out.

    None where one belongs to somebody whom the token may not see: then nobody can tell whose limits are lifted.
    """
    if not limits:
        return {}
    names = {user.uuid: fold(user.username) for user in users}
    if not set(limits) <= set(names):
        return None
    return {names[uuid]: dict(values) for uuid, values in limits.items() if names[uuid]}


def _accounts(site: Site) -> Mapping[str, ProjectAccounts] | None:
    try:
        return account_lists.read(site)
    except WaldurError as error:
        log.warning(
            "service and course accounts could not be read, so nobody is removed in this pass: %s", error
        )
        return None


def _orders(client: WaldurClient) -> dict[str, frozenset[OrderType]]:
    """Kinds of the orders under way by resource."""
    found: dict[str, frozenset[OrderType]] = {}
    for order in orders.actionable(client):
        found[order.resource_uuid] = found.get(order.resource_uuid, frozenset()) | {order.type}
    return found
