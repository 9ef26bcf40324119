# SPDX-License-Identifier: MIT
"""Observe the orders of a pass: what Waldur and the cluster say of them, and the accounts of those that make one. Plan
them: one plan for each order.

Read only. What concerns one order only delays that order; what concerns all of them ends the pass. A plan starts from
any state, so whatever cut an earlier pass off, the next one continues where it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from agent.core.account_names import NameRules, fold
from agent.core.actions import Action
from agent.core.errors import ConfigError, PlanRefused, SiteAgentError, WaldurError
from agent.core.model import AllocationSpec, Order, OrderType, Resource, Snapshot
from agent.core.policy import PolicyRules
from agent.plan import allocations
from agent.plan import orders as planner
from agent.plan.allocations import OfferingRules
from agent.plan.orders import CREATING, OrderCase, OrderPlan, Team, team_of
from agent.plan.policy.rules import PolicyContext
from agent.run import gate
from agent.run.cluster_facts import require_accounts, with_used_limits
from agent.run.orders import decisions
from agent.run.orders.naming import AccountNaming
from agent.run.results import OrderResult, Result, postponed
from agent.run.site import Site, offering_facts, offering_rules
from agent.state import cluster_usernames, ledger
from agent.state.hints import SEEN_OFFERINGS
from agent.waldur import members, offerings, pool, resources
from agent.waldur import orders as waldur_orders
from agent.waldur.listing import PAGE_SIZE
from backends.base import NAMES, Scope

log = logging.getLogger(__name__)

Spec = AllocationSpec | PlanRefused


@dataclass(frozen=True, slots=True)
class OrderFacts:
    """What was read for the orders of a pass."""

    rules: OfferingRules
    snapshot: Snapshot
    cases: Sequence[OrderCase] = ()
    # The allocation of each order that makes one, or why there can be none, by order uuid.
    specs: Mapping[str, Spec] = field(default_factory=dict)
    # Orders that cannot be planned now.
    results: Sequence[OrderResult] = ()
    # These are all orders of the offering.
    is_whole: bool = True
    # Accounts whose used amounts were asked for.
    usage_asked: frozenset[str] = frozenset()
    # Why the site rejects an order, by its uuid.
    rejected: Mapping[str, str] = field(default_factory=dict)
    # There are no orders, and Waldur was asked just now whether the offering can be seen.
    is_seen: bool = False


@dataclass(frozen=True)
class PlannedOrders:
    """The plans of a pass and the facts that they were made from."""

    facts: OrderFacts
    plans: Sequence[OrderPlan]

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        return tuple(dict.fromkeys(action for plan in self.plans for action in plan.actions))

    @property
    def snapshot(self) -> Snapshot:
        return self.facts.snapshot

    @property
    def is_whole(self) -> bool:
        return self.facts.is_whole and not self.facts.results

    @cached_property
    def context(self) -> PolicyContext:
        """Return the accounts that Waldur names: those of the resources, and the project's above them."""
        names: NameRules = self.facts.rules.names
        named: set[str] = set()
        derived: dict[str, bool] = {}
        for plan in self.plans:
            resource = plan.case.resource
            derived |= self._derived(plan)
            named |= {fold(resource.backend_id), plan.account}
            # Servers of 2024 report no slug of a resource's project: its account is named by uuid then.
            tails = {resource.project_slug or plan.case.order.project_slug, resource.project_uuid} - {""}
            named |= {fold(names.project_prefix + tail) for tail in tails}
            spec = self.facts.specs.get(plan.case.order.uuid)
            if isinstance(spec, AllocationSpec):
                named |= {ancestor.name for ancestor in spec.ancestors}
        return PolicyContext(
            named=frozenset(named - {""}),
            derived=derived,
            making=self._accounts(CREATING),
            ending=self._accounts((OrderType.TERMINATE,)),
        )

    def _derived(self, plan: OrderPlan) -> dict[str, bool]:
        resource, rules, snapshot = plan.case.resource, self.facts.rules, self.snapshot
        spec = self.facts.specs.get(plan.case.order.uuid)
        if not plan.account or isinstance(spec, PlanRefused):
            return {}
        if spec is None:
            slug = plan.case.order.project_slug
            try:
                spec = allocations.allocation(resource, rules, plan.account, snapshot, project_slug=slug)
            except PlanRefused:
                return {}
        return allocations.derived(resource, rules, spec, snapshot)

    def _accounts(self, types: tuple[OrderType, ...]) -> frozenset[str]:
        plans = (p for p in self.plans if p.case.order.type in types and not p.refusal)
        return frozenset(plan.account for plan in plans if plan.account)

    def again(self, plans: Iterable[OrderPlan], snapshot: Snapshot) -> list[OrderPlan]:
        """Plan the orders of `plans` again for another state of the cluster, with the names chosen before."""
        cases = [plan.case for plan in plans]
        return _plans(cases, self.facts, snapshot)

    def only(self, plans: Iterable[OrderPlan]) -> PlannedOrders:
        """Return the plan for these orders alone: the others are not carried out, and nothing may depend on them."""
        facts = replace(self.facts, is_whole=False)
        return PlannedOrders(facts, self.again(plans, self.snapshot))


@dataclass(frozen=True, slots=True)
class OrderRead:
    """Cases by order, and the failed reads of those that cannot be planned now."""

    rules: OfferingRules
    cases: Sequence[OrderCase]
    unread: Mapping[str, WaldurError]


def observe(site: Site, order_uuid: str | None = None) -> OrderFacts:
    """Return what Waldur and the cluster say about the orders, or about one. Raises SiteAgentError."""
    orders = actionable(site, order_uuid)
    is_whole = order_uuid is None
    if not orders:
        rules = OfferingRules(site.offering.names, ())
        is_seen = is_whole and _is_seen(site)
        return OrderFacts(rules, Snapshot(site.backend.cluster), is_whole=is_whole, is_seen=is_seen)
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
    hook = site.offering.order_hook
    decided = decisions.Decided(read.cases) if hook is None else decisions.decide(site, hook, read.cases)
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
    """Return by order uuid the allocations of those that make one, and why for some they cannot be known now."""
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
    snapshot = with_used_limits(site, facts.snapshot, accounts)
    return replace(facts, snapshot=snapshot, usage_asked=facts.usage_asked | accounts)


def actionable(site: Site, order_uuid: str | None = None) -> list[Order]:
    """Return the offering's orders that wait for the agent, or the named one if it does. Raises WaldurError."""
    client = site.client
    if order_uuid is not None:
        order = waldur_orders.get(client, order_uuid)
        return [order] if order.state in waldur_orders.ACTIONABLE else []
    return waldur_orders.actionable(client)


def _is_seen(site: Site) -> bool:
    """Look whether the token may see the offering, where that was not done lately: return whether it was done now.
    Raises WaldurError where the offering does not exist, or the token may not see it.
    """
    client = site.client
    if SEEN_OFFERINGS.get(site.state_dir, client.offering_uuid, client.url):
        return False
    offering_facts(site, valid_s=0)
    return True


def gather(site: Site, orders: Sequence[Order]) -> OrderRead:
    """Read the resources, members and plans of these orders, each once. Raises WaldurError where what concerns all of
    them cannot be read.
    """
    client = site.client
    facts = offering_facts(site, valid_s=0)
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


def plan(facts: OrderFacts) -> PlannedOrders:
    """Return one plan for each order."""
    return PlannedOrders(facts, _plans(facts.cases, facts, facts.snapshot))


def _plans(cases: Sequence[OrderCase], facts: OrderFacts, snapshot: Snapshot) -> list[OrderPlan]:
    """Return one plan per case. Terminations are planned together, after what the other orders build: the last one
    deletes the project's account too, and a user's default account may become one that is being made.
    """
    rules, rejected = facts.rules, facts.rejected
    wanted = [case for case in cases if case.order.uuid not in rejected]
    endings = [case for case in wanted if case.order.type is OrderType.TERMINATE]
    plans = [
        planner.rejection(case, rejected[case.order.uuid]) for case in cases if case.order.uuid in rejected
    ]
    for case in wanted:
        if case in endings:
            continue
        spec = facts.specs.get(case.order.uuid)
        try:
            if isinstance(spec, PlanRefused):
                plans.append(planner.refusal(case, spec))
            elif spec is not None:
                plans.append(planner.creation(case, rules, spec, snapshot))
            else:
                plans.append(planner.update(case, rules, snapshot))
        except PlanRefused as refused:
            plans.append(planner.refusal(case, refused))
    built = [action for plan in plans for action in plan.actions]
    needed = {ancestor.name for plan in plans if plan.spec for ancestor in plan.spec.ancestors}
    plans += planner.terminations(endings, rules, snapshot, other_actions=built, needed=needed)
    by_order = {plan.case.order.uuid: plan for plan in plans}
    return [by_order[case.order.uuid] for case in cases]
