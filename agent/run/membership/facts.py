# SPDX-License-Identifier: MIT
"""Read what Waldur says about the allocations of an offering, in bulk: the number of requests does not grow with
resources.

Teams come from one listing of all project permissions of the provider. Where that is not allowed (403, or a server
without it), or in a pass over a single resource or project, they come from each resource's own team.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from agent.waldur import members, offerings, orders, pool, resources, teams
from agent.waldur.client import WaldurClient
from agent.waldur.teams import UserLimits

log = logging.getLogger(__name__)

# How long the options and the provider of the offering are not read again.
OFFERING_VALID_S = 600.0
BULK_TEAMS = "project_permissions"
# Listings that are read beside the resources.
BESIDE = 3
# With these a resource has members of its own, fewer than its project (8.1).
NARROWING = ("enable_resource_projects",)


@dataclass(frozen=True, slots=True)
class PassScope:
    """What a pass covers: everything, or one resource or project that an event told of."""

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


def gather(site: Site, scope: PassScope = PassScope()) -> MembershipFacts:
    """Read everything that a membership pass needs. Raises WaldurError where what concerns all resources is unreadable.

    Listings are read at once, but orders before resources: the limits of an order that ends in between are in the
    resource.
    """
    client = site.client
    offering = _offering(site)
    with pool.beside(BESIDE) as start:
        users = start(lambda: _users(site))
        accounts = start(lambda: _accounts(site))
        limits = start(lambda: teams.user_limits(client))
        in_orders: dict[str, frozenset[OrderType]] = {}
        for order in orders.actionable(client):
            in_orders[order.resource_uuid] = in_orders.get(order.resource_uuid, frozenset()) | {order.type}
        if scope.resource_uuid:
            listed = [resources.get(client, scope.resource_uuid, fields=resources.SYNC_FIELDS)]
        else:
            states = (*resources.HANDLED, *resources.IN_PROGRESS)
            listed = resources.listed(
                client, states, fields=resources.SYNC_FIELDS, project_uuid=scope.project_uuid
            )
        found = [resource for resource in listed if resource.state in resources.HANDLED]
        named = [resource for resource in found if resource.backend_id]
        of_project = _bulk_teams(site, scope, named)
        return MembershipFacts(
            offering=offering,
            resources=found,
            in_progress=[resource for resource in listed if resource.state in resources.IN_PROGRESS],
            users=users.result(),
            teams=_teams(site, named, users.result(), of_project),
            accounts=accounts.result(),
            orders=in_orders,
            user_limits=limits.result(),
        )


def _users(site: Site) -> list[OfferingUser]:
    return members.offering_users(site.client, with_persons=site.offering.username_backend != "base")


def _offering(site: Site) -> OfferingFacts:
    """Return the facts of the offering, read at most OFFERING_VALID_S ago."""
    cache = site.cache
    if cache.offering is None or time.monotonic() - cache.offering_read_s > OFFERING_VALID_S:
        cache.offering, cache.offering_read_s = offerings.facts(site.client), time.monotonic()
        cache.provider_uuid = None
    return cache.offering


def _bulk_teams(site: Site, scope: PassScope, named: Sequence[Resource]) -> teams.Teams | None:
    """Return the people of all projects from one listing; None where teams are to be read one by one."""
    client = site.client
    if not (scope.is_everything and named and not _is_narrowed(site) and client.if_supported(BULK_TEAMS)):
        return None
    offering, cache = _offering(site), site.cache
    try:
        if cache.provider_uuid is None:
            cache.provider_uuid = teams.provider_uuid(client, offering.customer_uuid)
        return teams.of_projects(client, cache.provider_uuid) if cache.provider_uuid else None
    except WaldurError as error:
        if error.status not in (403, 404, 405):
            raise
        client.note_missing(BULK_TEAMS, error)
        return None


def _teams(
    site: Site, named: Sequence[Resource], users: Iterable[OfferingUser], of_project: teams.Teams | None
) -> dict[str, Sequence[TeamMember] | WaldurError]:
    """Return teams by resource, from the listing of all or read one by one; both lead to the same plan.

    The listing does not have the names of people whose account at the offering the token may not see, nor projects
    without anybody: those teams are read one by one.
    """
    client = site.client
    if of_project is None:
        return _single_teams(client, named, narrowed=_is_narrowed(site))
    seen = {user.user_uuid for user in users}
    told = {
        project: team for project, team in of_project.items() if seen >= {member.user_uuid for member in team}
    }
    asked = [resource for resource in named if resource.project_uuid not in told]
    listed = {r.uuid: told[r.project_uuid] for r in named if r.project_uuid in told}
    return {**listed, **_single_teams(client, asked, narrowed=False)}


def confirm_people(site: Site, facts: MembershipFacts, concerned: Sequence[Resource]) -> MembershipFacts:
    """Return the facts with everything read again that decides who is a member of these. Raises WaldurError."""
    client = site.client
    users = _users(site)
    read = _single_teams(client, concerned, narrowed=_is_narrowed(site))
    return replace(facts, users=users, teams={**facts.teams, **read}, accounts=_accounts(site))


def _is_narrowed(site: Site) -> bool:
    return any(_offering(site).plugin_options.get(option) for option in NARROWING)


def _single_teams(
    client: WaldurClient, named: Sequence[Resource], *, narrowed: bool
) -> dict[str, Sequence[TeamMember] | WaldurError]:
    """Read a team for each project, or for each resource where these are `narrowed`."""
    place = {resource.uuid: resource.uuid if narrowed else resource.project_uuid for resource in named}
    asked = {place[resource.uuid]: resource.uuid for resource in named}
    answers = teams.of_resources(client, asked.values())
    return {resource.uuid: answers[asked[place[resource.uuid]]] for resource in named}


def sync_rules(site: Site, facts: MembershipFacts, *, silent: str = "") -> MembershipRules:
    """Return the plan's rules. `silent`: an offering on the same cluster whose accounts are not known yet, or empty."""
    offering = offering_rules(site, facts.offering)
    limits = LimitRules(
        offering.components,
        from_waldur=site.offering.limits_source is LimitsSource.WALDUR,
        periodic=site.offering.periodic_limits_enabled,
    )
    waiting = (
        f"offering {silent} on the same cluster has not told yet which accounts it names" if silent else ""
    )
    return MembershipRules(
        offering,
        limits,
        nobody_leaves=waiting,
        keeps_unmanaged=bool(site.offering.keeps_unmanaged),
        with_details=site.exposes_details,
    )


def named_accounts(found: Iterable[Resource]) -> frozenset[str]:
    """Return the accounts that these resources name."""
    return frozenset(fold(resource.backend_id) for resource in found if resource.backend_id)


def limits_by_username(
    limits: Mapping[str, Mapping[str, object]], users: Iterable[OfferingUser]
) -> dict[str, dict[str, Any]] | None:
    """Return a resource's limits of single users by username, without users who have none here.

    None where one belongs to a user whom the token may not see: then it is unknown whose limits are lifted.
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
