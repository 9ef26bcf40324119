# SPDX-License-Identifier: MIT
"""Observe the orders of a pass: what Waldur and the cluster say of them, and the accounts of those that make one.

Read only. What concerns one order only delays that order; what concerns all of them ends the pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from agent.core.account_names import fold
from agent.core.errors import BackendError, ConfigError, PlanRefused, SiteAgentError, WaldurError
from agent.core.model import Order, OrderType, Resource, Snapshot
from agent.core.policy import PolicyRules
from agent.plan.allocations import OfferingRules
from agent.plan.orders import CREATING, OrderCase, Team, team_of
from agent.run import gate
from agent.run.lost_accounts import require_accounts
from agent.run.orders import decisions
from agent.run.orders.naming import AccountNaming
from agent.run.orders.planning import OrderFacts, PlannedOrders, Spec
from agent.run.results import OrderResult, Result, postponed
from agent.run.site import Site, offering_rules
from agent.state import cluster_usernames, ledger, listings
from agent.waldur import members, offerings, pool, resources
from agent.waldur import orders as waldur_orders
from agent.waldur.listing import PAGE_SIZE
from backends.base import NAMES, Scope

log = logging.getLogger(__name__)

Lock = Callable[[str], bool]

# An empty list of orders does not tell whether the token may see the offering: that is asked this often.
VISIBILITY_VALID = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class OrderRead:
    """Cases by order, and the failed reads of those that cannot be planned now."""

    rules: OfferingRules
    cases: Sequence[OrderCase]
    unread: Mapping[str, WaldurError]


def observe(site: Site, order_uuid: str | None = None, lock: Lock = lambda _: True) -> OrderFacts:
    """Return what Waldur and the cluster say about the orders that `lock` gives us. Raises SiteAgentError."""
    found = actionable(site, order_uuid)
    orders = [order for order in found if lock(order.uuid)]
    is_whole = order_uuid is None and len(orders) == len(found)
    if not orders:
        rules = OfferingRules(site.offering.names, ())
        return OrderFacts(rules, Snapshot(site.backend.cluster), is_whole=is_whole)
    results, known = [], []
    for order in orders:
        if order.type is OrderType.UNKNOWN:
            log.warning(
                "order %s is of a type that this agent does not know: left alone",
                order.uuid,
                extra={"order": order.uuid},
            )
            results.append(OrderResult(order.uuid, order.type, Result.WAITING, message="unknown order type"))
        else:
            known.append(order)
    read = gather(site, known)
    results += [_unread(order, read.unread[order.uuid]) for order in known if order.uuid in read.unread]
    decided = decisions.decide(site, read.cases)
    results += decided.results
    if not (wanted := decided.accepted):
        snapshot = Snapshot(site.backend.cluster)
        return OrderFacts(
            read.rules, snapshot, decided.rejected, results=results, is_whole=is_whole, rejected=decided.why
        )
    ending = {fold(c.resource.backend_id) for c in wanted if c.order.type is OrderType.TERMINATE} - {""}
    snapshot = site.backend.observe(Scope(jobs_of=frozenset(ending), names=NAMES))
    needed = {fold(case.resource.backend_id) for case in wanted if case.order.type not in CREATING} - {""}
    require_accounts(site, snapshot, needed)
    naming = AccountNaming(site, read.rules, snapshot)
    cases, waiting = naming.with_lost_accounts(wanted)
    cases = _under_known_names(site, cases, snapshot)
    specs, unnamed = _specs(naming, cases)
    waiting |= unnamed
    results += [_unread(c.order, waiting[c.order.uuid]) for c in wanted if c.order.uuid in waiting]
    cases = [*(case for case in cases if case.order.uuid not in waiting), *decided.rejected]
    return OrderFacts(read.rules, snapshot, cases, specs, results, is_whole, rejected=decided.why)


def _under_known_names(site: Site, cases: Sequence[OrderCase], snapshot: Snapshot) -> list[OrderCase]:
    """Return the cases with the names that people still have in accounts of the cluster: whether they change is decided
    for all accounts together, in a pass over members. Raises StateError.
    """
    if not any(case.people for case in cases):
        return list(cases)
    known = cluster_usernames.of_offering(site.state_dir, site.offering.uuid)

    def name_of(case: OrderCase, name: str) -> str:
        before = known.get(case.people.get(name, ""), "")
        return before if before and snapshot.accounts_of(before) else name

    return [replace(case, members=tuple(name_of(case, name) for name in case.members)) for case in cases]


def _specs(
    naming: AccountNaming, cases: Sequence[OrderCase]
) -> tuple[dict[str, Spec], dict[str, SiteAgentError]]:
    """Return by order uuid the allocations of those that make one, and why for some nobody can tell now."""
    specs: dict[str, Spec] = {}
    waiting: dict[str, SiteAgentError] = {}
    for case in cases:
        if case.order.type not in CREATING:
            continue
        try:
            specs[case.order.uuid] = naming.choose(case)
        except PlanRefused as refused:
            specs[case.order.uuid] = refused
        except (WaldurError, ConfigError) as error:
            waiting[case.order.uuid] = error
    return specs, waiting


def refine(site: Site, rules: PolicyRules, facts: OrderFacts, plan: PlannedOrders) -> OrderFacts | None:
    """Return the facts with the used amount of each limit that an order lowers; unknown where it cannot be read."""
    accounts = gate.unknown_usage(rules, plan) - facts.usage_asked
    if not accounts:
        return None
    asked = replace(facts, usage_asked=facts.usage_asked | accounts)
    try:
        seen = site.backend.observe(Scope(parts=frozenset(), usage_of=accounts))
    except BackendError as error:
        log.warning("what accounts have used of their limits cannot be read: %s", error)
        return asked
    return replace(asked, snapshot=facts.snapshot.with_usage(seen))


def actionable(site: Site, order_uuid: str | None = None) -> list[Order]:
    """Return the offering's orders that wait for the agent, or the named one if it does. Raises WaldurError."""
    client = site.client
    if order_uuid is not None:
        order = waldur_orders.get(client, order_uuid)
        return [order] if order.state in waldur_orders.ACTIONABLE else []
    found = waldur_orders.actionable(client)
    if not found and not listings.was_seen(
        site.state_dir, client.offering_uuid, client.url, VISIBILITY_VALID
    ):
        offerings.facts(client)  # raises where the offering does not exist or the token may not see it
        listings.note_seen(site.state_dir, client.offering_uuid, client.url)
    return found


def gather(site: Site, orders: Sequence[Order]) -> OrderRead:
    """Read the resources, members and plans of these orders, each once. Raises WaldurError where what concerns all of
    them cannot be read.
    """
    client = site.client
    facts = offerings.facts(client)
    read = resources.by_uuid(client, [order.resource_uuid for order in orders])
    # Update orders without limits of their own get the quotas of their plan.
    plans = {o.plan_uuid for o in orders if o.type is OrderType.UPDATE and not o.limits and o.plan_uuid}
    quotas = pool.each(sorted(plans), lambda uuid: offerings.plan_quotas(client, uuid))
    created = [read[order.resource_uuid] for order in orders if order.type in CREATING]
    teams = _teams(site, [resource for resource in created if isinstance(resource, Resource)])
    cases: list[OrderCase] = []
    unread: dict[str, WaldurError] = {}
    for order in orders:
        resource, of_plan = read[order.resource_uuid], quotas.get(order.plan_uuid)
        team: Team | WaldurError = Team()
        if isinstance(resource, Resource) and order.type in CREATING:
            team = teams[resource.project_uuid] if not resource.restrict_member_access else Team()
        if isinstance(resource, WaldurError):
            unread[order.uuid] = resource
        elif isinstance(of_plan, WaldurError):
            unread[order.uuid] = of_plan
        elif isinstance(team, WaldurError):
            unread[order.uuid] = team
        else:
            cases.append(OrderCase(order, resource, team.members, team.nameless, of_plan, people=team.people))
    return OrderRead(offering_rules(site, facts), cases, unread)


def _teams(site: Site, created: Sequence[Resource]) -> Mapping[str, Team | WaldurError]:
    """Return the people by project. One team is read per project, whatever the number of its allocations."""
    client = site.client
    by_project = {r.project_uuid: r.uuid for r in created if not r.restrict_member_access}
    if not by_project:
        return {}
    teams = pool.each(by_project, lambda project: members.team(client, by_project[project]))
    several = (team for team in teams.values() if not isinstance(team, WaldurError))
    people = {member.user_uuid for team in several for member in team}
    known = ledger.of_offering(site.state_dir, site.backend.cluster, site.offering.uuid)
    # An offering has more users than accounts: of a large one a few are read sooner than all pages of them.
    is_few = len(people) <= len(known) / PAGE_SIZE
    try:
        users = members.offering_users_of(client, people) if is_few else members.offering_users(client)
        accounts = members.project_accounts(client)
    except WaldurError as error:
        # Members matter to what is created only: changes and terminations go on.
        return dict.fromkeys(by_project, error)
    return {
        project: team
        if isinstance(team, WaldurError)
        else team_of(team, users, accounts.get(project, frozenset()))
        for project, team in teams.items()
    }


def _unread(order: Order, error: SiteAgentError) -> OrderResult:
    ids = {"order": order.uuid, "resource": order.resource_uuid}
    log.warning("order %s (%s) waits: %s", order.uuid, order.type, error, extra=ids)
    return OrderResult(order.uuid, order.type, postponed(error), message=str(error), error=error)
