# SPDX-License-Identifier: MIT
"""What follows from a plan of members for groups, homes and those who leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent.core.account_names import fold
from agent.core.actions import ClusterAction, RemoveMember, only
from agent.core.directory_actions import BeginDeletion
from agent.core.errors import SiteAgentError
from agent.core.model import Deletion, OfferingUser, Snapshot
from agent.plan import departures
from agent.plan.departures import Departure
from agent.plan.groups import DesiredGroups
from agent.plan.policy.gate import Decision
from agent.run.engine import Work
from agent.run.membership import planning
from agent.run.membership.planning import PlannedSync, SyncFacts


def expected(work: Work[PlannedSync]) -> tuple[SyncFacts, Snapshot]:
    """Return what a pass would find afterwards, if all goes well that is allowed: whose deletion has begun, and who is
    in which account.
    """
    facts, allowed, seen = work.plan.facts, work.decision.allowed, work.plan.snapshot
    begun = {action.offering_user for action in only(BeginDeletion, allowed)}
    users = [replace(u, state=Deletion.DELETING) if u.uuid in begun else u for u in facts.waldur.users]
    names = {fold(user.cluster_name) for user in facts.departing}
    for action in only(RemoveMember, allowed):
        if fold(action.user) in names:
            seen = action.applied_to(seen)
    return replace(facts, waldur=replace(facts.waldur, users=users)), seen


def departures_of(
    facts: SyncFacts, seen: Snapshot, unremovable: Mapping[str, SiteAgentError]
) -> Sequence[Departure]:
    """Return the people whose deletion Waldur wants and that has not ended, with the accounts of the offering that they
    are still in, and that are not those of somebody else of the same name.
    """
    leaving = [user for user in facts.departing if user.state in departures.UNDER_WAY]
    if not leaving:
        return []
    left = {user.uuid: planning.accounts_left(facts, seen, user.cluster_name) for user in leaving}
    # Whose deletion has not begun may still stay, but for those who are in nothing that could keep them.
    others = (user for user in facts.waldur.users if user.uuid not in left or left[user.uuid])
    staying = departures.staying_names(others, facts.taken_back).union(*facts.belonging.values())

    def departure(user: OfferingUser) -> Departure:
        name, inside = fold(user.cluster_name), left[user.uuid]
        fault = unremovable.get(name) or (None if inside else departures.unknown_entry(user))
        return Departure(user, inside, fault, is_shared=name in staying)

    return [departure(user) for user in leaving]


def desired_groups(
    sync: PlannedSync, decision: Decision, errors: Mapping[str, SiteAgentError]
) -> DesiredGroups:
    """Return the groups of the accounts that are in step, and ours. `errors`: of those that are not, by resource uuid.

    A group is complete where nobody but the wanted members is in the account: others may then leave the group.
    """
    in_step = [
        plan
        for plan in sync.plans
        if plan.spec and plan.case.resource.uuid not in errors and decision.ledger.is_ours(plan.account)
    ]
    members: dict[str, frozenset[str]] = {}
    for plan in in_step:
        own = plan.spec.members if plan.spec else ()
        members[plan.account] = members.get(plan.account, frozenset()).union(own)
    held = {a.account for p in decision.held for a in p.actions if isinstance(a, ClusterAction)}
    complete = set()
    for plan in in_step:
        case = plan.case
        unclear = case.members.unclear(case.members.stale(sync.snapshot.users_of(plan.account)))
        may_stay = case.members.kept or unclear or sync.facts.rules.nobody_leaves
        is_shared = case.also_named_by or case.shared_with
        if plan.account not in held and case.members.complete and not may_stay and not is_shared:
            complete.add(plan.account)
    known = None
    if sync.facts.rules.keeps_unmanaged:
        known = frozenset[str]().union(*{plan.case.members.known for plan in in_step})
    return DesiredGroups(members, complete=complete, known=known)
