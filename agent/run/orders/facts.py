# SPDX-License-Identifier: MIT
"""What Waldur knows about the orders of a pass: their resources, members and plans, each asked for once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.core.account_names import fold
from agent.core.errors import WaldurError
from agent.core.model import (
    Order,
    OrderType,
    Resource,
    ResourceState,
    Snapshot,
)
from agent.plan import rebuild
from agent.plan.allocations import OfferingRules
from agent.plan.orders import CREATING, OrderCase, members_of
from agent.run.offering import rules_of
from agent.run.site import Site
from agent.state import named_accounts
from agent.waldur import members, offerings, pool, resources
from agent.waldur.client import WaldurClient

Answer = OrderCase | WaldurError
# What stands on the cluster as far as Waldur knows; one that is erred may never have been made.
WITH_ACCOUNT = (ResourceState.OK, ResourceState.UPDATING, ResourceState.TERMINATING)


@dataclass(frozen=True, slots=True)
class OrderRead:
    """Cases by order, and the failed reads of those that cannot be planned now."""

    rules: OfferingRules
    cases: Sequence[OrderCase]
    unread: Mapping[str, WaldurError]


def gather(site: Site, orders: Sequence[Order]) -> OrderRead:
    """Everything about these orders. Raises WaldurError where what concerns all of them cannot be read."""
    facts = offerings.facts(site.client)
    read = resources.by_uuid(site.client, [order.resource_uuid for order in orders])
    quotas = _quotas(site.client, orders)
    usernames = _members(site.client, [r for o in orders if o.type in CREATING if (r := _found(read, o))])
    cases, unread = [], {}
    for order in orders:
        answer = _case(order, read, quotas, usernames)
        if isinstance(answer, WaldurError):
            unread[order.uuid] = answer
        else:
            cases.append(answer)
    return OrderRead(rules_of(site, facts), cases, unread)


def _quotas(client: WaldurClient, orders: Iterable[Order]) -> Mapping[str, dict[str, int] | WaldurError]:
    """Quotas of the plans of update orders that carry no limits of their own."""
    plans = {o.plan_uuid for o in orders if o.type is OrderType.UPDATE and not o.limits and o.plan_uuid}
    return pool.each(sorted(plans), lambda uuid: offerings.plan_quotas(client, uuid))


def _members(
    client: WaldurClient, created: Sequence[Resource]
) -> Mapping[str, tuple[str, ...] | WaldurError]:
    """Usernames by project. One team is read per project, whatever the number of its allocations."""
    open_ones = [r for r in created if not r.restrict_member_access]
    if not open_ones:
        return {}
    by_project = {r.project_uuid: r.uuid for r in open_ones}
    try:
        users = members.offering_users(client)
        accounts = members.project_accounts(client)
    except WaldurError as error:
        # Who is in a project concerns what is created only: changes and terminations go on.
        return dict.fromkeys(by_project, error)
    teams = pool.each(by_project, lambda project: members.team(client, by_project[project]))
    return {
        project: team
        if isinstance(team, WaldurError)
        else members_of(team, users, accounts.get(project, frozenset()))
        for project, team in teams.items()
    }


def _case(
    order: Order,
    read: Mapping[str, Resource | WaldurError],
    quotas: Mapping[str, dict[str, int] | WaldurError],
    usernames: Mapping[str, tuple[str, ...] | WaldurError],
) -> Answer:
    resource = read[order.resource_uuid]
    if isinstance(resource, WaldurError):
        return resource
    of_plan = quotas.get(order.plan_uuid)
    if isinstance(of_plan, WaldurError):
        return of_plan
    team = (
        ()
        if order.type not in CREATING or resource.restrict_member_access
        else usernames[resource.project_uuid]
    )
    if isinstance(team, WaldurError):
        return team
    return OrderCase(order, resource, team, of_plan)


def _found(read: Mapping[str, Resource | WaldurError], order: Order) -> Resource | None:
    answer = read[order.resource_uuid]
    return None if isinstance(answer, WaldurError) else answer


def require_accounts(site: Site, cases: Sequence[OrderCase], snapshot: Snapshot) -> None:
    """Raise AccountsLost where so many of the offering's accounts are gone that no order is at fault, nor should one be
    carried out.

    Waldur is asked which accounts it names only where one of these orders misses its own, or none of those is there
    that were known when all members were last looked at. Raises WaldurError.
    """
    standing = set(snapshot.accounts)
    known = named_accounts.of_offering(site.state_dir, site.backend.cluster, site.offering.uuid)
    named = {fold(case.resource.backend_id) for case in cases if case.order.type not in CREATING} - {""}
    if named <= standing and not (known and known.isdisjoint(standing)):
        return
    listed = resources.listed(site.client, WITH_ACCOUNT, fields=("uuid", "state", "backend_id"))
    found = {fold(resource.backend_id) for resource in listed if resource.backend_id}
    rebuild.require_accounts(found, snapshot)
