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
from agent.core.model import AccountSpec, AllocationSpec, Part, Resource, Snapshot
from agent.core.people import ProjectAccounts
from agent.core.plans import Plan
from agent.core.policy import LimitsSource
from agent.core.waldur_actions import ClaimAccount
from agent.plan import allocations, membership, orphans
from agent.plan.membership import MembershipRules, ResourceCase, ResourcePlan
from agent.plan.people import people_of
from agent.plan.shared_limits import LimitRules
from agent.run import claims
from agent.run.membership_facts import MembershipFacts, Reach, limits_by_username, named_accounts
from agent.run.order_facts import rules_of
from agent.run.sites import Site
from backends.base import Scope

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedSync:
    """The plans of a pass and what they were made from; `unread` holds resources whose team could not be read."""

    rules: MembershipRules
    facts: MembershipFacts
    snapshot: Snapshot
    plans: Sequence[ResourcePlan]
    specs: Mapping[str, AllocationSpec]
    named: frozenset[str]
    claims: Sequence[ClaimAccount] = ()
    unread: Mapping[str, WaldurError] = field(default_factory=dict)

    def plan(self) -> Plan:
        return Plan.of([*self.claims, *(action for plan in self.plans for action in plan.actions)])

    def again(self, plans: Iterable[ResourcePlan], snapshot: Snapshot) -> list[ResourcePlan]:
        """New plans for these resources in another state of the cluster."""
        return membership.plans([plan.case for plan in plans], self.specs, self.rules, snapshot)


def plan_pass(site: Site, facts: MembershipFacts, snapshot: Snapshot, reach: Reach = Reach()) -> PlannedSync:
    """Plan for these facts. Changes nothing in Waldur and on the cluster. Raises SiteAgentError."""
    rules = sync_rules(site, facts)
    foreign = claims.of_others(site, named_accounts(facts.resources), complete=reach.is_everything)
    cases, unread = _cases(facts, foreign)
    specs = _specs(site, cases, rules, snapshot)
    plans = membership.plans(cases, specs, rules, snapshot)
    if more := _looked_closer(site, plans, snapshot):
        snapshot = more
        plans = membership.plans(cases, specs, rules, snapshot)
    named = named_accounts(facts.resources)
    found = orphans.claims(facts.resources, rules.offering.names, snapshot, named | set(foreign))
    lost = found if reach.is_everything else []
    return PlannedSync(rules, facts, snapshot, plans, specs, named, lost, unread)


def sync_rules(site: Site, facts: MembershipFacts) -> MembershipRules:
    offering = rules_of(site, facts.offering)
    limits = LimitRules(
        offering.components,
        from_waldur=site.offering.limits_source is LimitsSource.WALDUR,
        periodic=site.offering.periodic_limits_enabled,
    )
    return MembershipRules(offering, limits)


def _cases(
    facts: MembershipFacts, foreign: Mapping[str, str]
) -> tuple[list[ResourceCase], dict[str, WaldurError]]:
    users = {user.user_uuid: user for user in facts.users}
    cases, unread = [], {}
    for resource in facts.resources:
        if not resource.backend_id:
            continue
        team = facts.teams.get(resource.uuid, ())
        if isinstance(team, WaldurError):
            unread[resource.uuid] = team
            continue
        known = facts.accounts
        accounts = None if known is None else known.get(resource.project_uuid, ProjectAccounts())
        people = people_of(team, users, accounts, restricted=resource.restrict_member_access)
        case = ResourceCase(
            resource, people, facts.orders.get(resource.uuid, frozenset()), _user_limits(facts, resource)
        )
        cases.append(replace(case, also_named_by=foreign.get(case.account, "")))
    return cases, unread


def _user_limits(facts: MembershipFacts, resource: Resource) -> Mapping[str, Mapping[str, object]] | None:
    if facts.user_limits is None:
        return None
    return limits_by_username(facts.user_limits.get(resource.uuid, {}), facts.users)


def _specs(
    site: Site, cases: Iterable[ResourceCase], rules: MembershipRules, snapshot: Snapshot
) -> dict[str, AllocationSpec]:
    return {
        case.resource.uuid: _spec(site, case, rules, snapshot)
        for case in cases
        if not membership.skip(case, snapshot)
    }


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
