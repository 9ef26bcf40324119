# SPDX-License-Identifier: MIT
"""Planning a membership pass: Waldur and the cluster read once, then all resources of the offering together.

Only where somebody leaves are the jobs of those accounts read as well, and only where a limit is lowered what is
used of it: an idle pass does not pay for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.core.actions import Action, SetLimits
from agent.core.errors import PlanRefused, WaldurError
from agent.core.model import AccountSpec, AllocationSpec, Part, Resource, ResourceState, Snapshot
from agent.core.names import fold
from agent.core.people import ProjectAccounts
from agent.core.plans import Plan
from agent.core.policy import LimitsSource
from agent.core.waldur_actions import ClaimAccount
from agent.plan import allocations, membership, orphans
from agent.plan.membership import MembershipRules, ResourceCase, ResourcePlan
from agent.plan.people import people_of
from agent.plan.shared_limits import LimitRules
from agent.run.membership.facts import MembershipFacts, Reach, limits_by_username, named_accounts
from agent.run.orders.facts import rules_of
from agent.run.site import Site
from agent.state import blocked, claims
from agent.waldur import resources
from backends.base import Scope

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedSync:
    """The plans of a pass and what they were made from. By resource uuid: `unread` where its team could not be read,
    `refused` where what Waldur says of it can never be on the cluster.
    """

    rules: MembershipRules
    facts: MembershipFacts
    snapshot: Snapshot
    plans: Sequence[ResourcePlan]
    specs: Mapping[str, AllocationSpec]
    named: frozenset[str]
    claims: Sequence[ClaimAccount] = ()
    unread: Mapping[str, WaldurError] = field(default_factory=dict)
    refused: Mapping[str, PlanRefused] = field(default_factory=dict)

    def plan(self) -> Plan:
        actions = (action for plan in self.plans for action in plan.actions)
        return Plan.of([*self.claims, *membership.in_order(actions)])

    def again(self, plans: Iterable[ResourcePlan], snapshot: Snapshot) -> list[ResourcePlan]:
        """New plans for these resources in another state of the cluster."""
        specs: dict[str, AllocationSpec | PlanRefused] = {**self.specs, **self.refused}
        return membership.plans([plan.case for plan in plans], specs, self.rules, snapshot)


def plan_pass(site: Site, facts: MembershipFacts, snapshot: Snapshot, reach: Reach = Reach()) -> PlannedSync:
    """Plan for these facts. Changes nothing in Waldur and on the cluster. Raises SiteAgentError."""
    foreign = claims.of_others(site)
    rules = sync_rules(site, facts, silent=foreign.silent)
    cases, unread = _cases(facts, foreign.accounts)
    closed = blocked.by_account(site)
    cases = [replace(case, blocked=closed.get(case.account, frozenset())) for case in cases]
    specs, refused = _specs(site, cases, rules, snapshot)
    named = named_accounts([*facts.resources, *facts.in_progress])
    planned = PlannedSync(rules, facts, snapshot, (), specs, named, unread=unread, refused=refused)
    plans = membership.plans(cases, {**specs, **refused}, rules, snapshot)
    if others := _other_holders(site, plans):
        cases = [replace(case, also_named_by=others.get(case.account, case.also_named_by)) for case in cases]
        plans = membership.plans(cases, {**specs, **refused}, rules, snapshot)
    if more := _looked_closer(site, plans, snapshot):
        snapshot = more
        plans = membership.plans(cases, {**specs, **refused}, rules, snapshot)
    lost = _lost(site, planned, foreign.accounts) if reach.is_everything else []
    return replace(planned, snapshot=snapshot, plans=plans, claims=lost)


def sync_rules(site: Site, facts: MembershipFacts, *, silent: str = "") -> MembershipRules:
    offering = rules_of(site, facts.offering)
    limits = LimitRules(
        offering.components,
        from_waldur=site.offering.limits_source is LimitsSource.WALDUR,
        periodic=site.offering.periodic_limits_enabled,
    )
    waiting = (
        f"offering {silent} on the same cluster has not told yet which accounts it names" if silent else ""
    )
    return MembershipRules(offering, limits, nobody_leaves=waiting)


def _cases(
    facts: MembershipFacts, foreign: Mapping[str, str]
) -> tuple[list[ResourceCase], dict[str, WaldurError]]:
    users = {user.user_uuid: user for user in facts.users}
    named = [resource for resource in facts.resources if resource.backend_id]
    unread = {r.uuid: team for r in named if isinstance(team := facts.teams.get(r.uuid), WaldurError)}
    strangers = [*facts.in_progress, *(resource for resource in named if resource.uuid in unread)]
    also = {fold(r.backend_id): f"resource {r.uuid}" for r in strangers if r.backend_id} | dict(foreign)
    names = frozenset(fold(user.username) for user in facts.users)
    cases = []
    for resource in named:
        team = facts.teams.get(resource.uuid, ())
        if isinstance(team, WaldurError):
            continue
        known = facts.accounts
        accounts = None if known is None else known.get(resource.project_uuid, ProjectAccounts())
        people = people_of(team, users, accounts, restricted=resource.restrict_member_access, known=names)
        orders = facts.orders.get(resource.uuid, frozenset())
        case = ResourceCase(resource, people, orders, _user_limits(facts, resource))
        cases.append(replace(case, also_named_by=also.get(case.account, "")))
    return cases, unread


def _user_limits(facts: MembershipFacts, resource: Resource) -> Mapping[str, Mapping[str, object]] | None:
    if facts.user_limits is None:
        return None
    return limits_by_username(facts.user_limits.get(resource.uuid, {}), facts.users)


def _specs(
    site: Site, cases: Iterable[ResourceCase], rules: MembershipRules, snapshot: Snapshot
) -> tuple[dict[str, AllocationSpec], dict[str, PlanRefused]]:
    specs, refused = {}, {}
    for case in cases:
        if membership.skip(case, rules, snapshot):
            continue
        try:
            specs[case.resource.uuid] = _spec(site, case, rules, snapshot)
        except PlanRefused as error:
            refused[case.resource.uuid] = error
    return specs, refused


def _spec(site: Site, case: ResourceCase, rules: MembershipRules, snapshot: Snapshot) -> AllocationSpec:
    """What the account shall be. Without usable slugs nothing is known of its place: then it stays where it is."""
    members = tuple(sorted(case.people.wanted))
    try:
        wish = allocations.allocation(case.resource, rules.offering, case.account, members=members)
        return site.backend.canonical(wish, snapshot)
    except PlanRefused as refused:
        parent = snapshot.accounts[case.account].parent or ""
        wish = AllocationSpec(
            AccountSpec(case.account, parent),
            members=members,
            wishes=allocations.wishes(case.resource, rules.offering),
            notes=(f"its place is not looked at: {refused}",),
        )
        return site.backend.canonical(wish, snapshot)


def _other_holders(site: Site, plans: Sequence[ResourcePlan]) -> dict[str, str]:
    """Accounts that somebody leaves and that resources outside of this plan name, too: Waldur is asked, and tells of
    all offerings that the token sees, whoever's agent serves them.
    """
    leaving = membership.leaving_accounts(plans)
    concerned = [plan for plan in plans if plan.account in leaving]
    spelled = {
        name: plan.account for plan in concerned for name in (plan.account, plan.case.resource.backend_id)
    }
    inside = {plan.case.resource.uuid for plan in plans}
    found = {}
    for name, holders in resources.holders_of_each(site.client, spelled, everywhere=True).items():
        if isinstance(holders, WaldurError):
            found[spelled[name]] = f"whoever does ({holders})"
            continue
        for holder in holders:
            is_over = holder.state is ResourceState.TERMINATED or holder.offering_uuid in site.elsewhere
            if holder.uuid not in inside and not is_over:
                found[spelled[name]] = f"resource {holder.uuid}"
    return found


def _lost(site: Site, planned: PlannedSync, foreign: Mapping[str, str]) -> list[ClaimAccount]:
    """Accounts to be written to resources that have lost theirs. Waldur is asked who else holds the name."""
    names = planned.rules.offering.names
    found = orphans.claims(
        planned.facts.resources, names, planned.snapshot, planned.named | frozenset(foreign)
    )
    holders = resources.holders_of_each(site.client, [claim.account for claim in found], everywhere=True)
    return [claim for claim in found if holders.get(claim.account, []) == []]


def _looked_closer(site: Site, plans: Sequence[ResourcePlan], snapshot: Snapshot) -> Snapshot | None:
    """The snapshot with what only some plans need to know; None where none does."""
    jobs_of = membership.leaving_accounts(plans)
    usage_of = _lowered(plans)
    if not jobs_of and not usage_of:
        return None
    seen = site.backend.observe(Scope(frozenset(), jobs_of=jobs_of, usage_of=usage_of))
    return replace(
        snapshot,
        active_jobs=seen.active_jobs,
        active_users=seen.active_users,
        used=seen.used,
        complete=snapshot.complete | (seen.complete & {Part.JOBS, Part.USAGE}),
    )


def _lowered(plans: Iterable[ResourcePlan]) -> frozenset[str]:
    """Accounts of which a limit is lowered."""

    def lowers(action: Action) -> bool:
        before = dict(action.before) if isinstance(action, SetLimits) else {}
        return isinstance(action, SetLimits) and any(
            tres not in before or value < before[tres] for tres, value in action.after
        )

    return frozenset(a.account for plan in plans for a in plan.cluster_actions() if lowers(a))
