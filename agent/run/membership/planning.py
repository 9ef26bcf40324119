# SPDX-License-Identifier: MIT
"""Plan a membership pass: facts of Waldur and the cluster in, a plan for each resource out, all resources of the
offering together. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from agent.core.account_names import fold
from agent.core.actions import Action, AddMember, ClusterAction, RemoveMember, only
from agent.core.association_actions import SetMemberQos
from agent.core.directory_actions import BeginDeletion
from agent.core.errors import PlanRefused, SiteAgentError, WaldurError
from agent.core.members import NO_MEMBERS, ProjectAccounts
from agent.core.model import (
    AccountSpec,
    AllocationSpec,
    Deletion,
    OfferingUser,
    OrderType,
    Part,
    Resource,
    ResourceState,
    Snapshot,
)
from agent.core.waldur_actions import ClaimAccount
from agent.plan import allocations, departures, lost, membership, posix_accounts
from agent.plan.departures import Departure
from agent.plan.groups import DesiredGroups
from agent.plan.lost import require_accounts
from agent.plan.membership import MembershipRules, ResourceCase, ResourcePlan, desired_members
from agent.plan.policy.gate import Decision
from agent.plan.policy.rules import PolicyContext
from agent.run.engine import Work
from agent.run.waldur_facts import MembershipFacts, limits_by_username, named_accounts

Spec = AllocationSpec | PlanRefused
# Accounts, and users of each, that one sentence names.
SHOWN = 5


@dataclass(frozen=True)
class SyncFacts:
    """What was read for a membership pass: Waldur, the cluster, and the remembered state."""

    waldur: MembershipFacts
    snapshot: Snapshot
    rules: MembershipRules
    # Returns a desired state in the cluster's spelling.
    canonical: Callable[[AllocationSpec, Snapshot], AllocationSpec]
    # Accounts that other offerings name, with the name of one.
    foreign: Mapping[str, str] = field(default_factory=dict)
    # Members by account who were blocked to remove them.
    blocked: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # Accounts whose removals Waldur has confirmed.
    confirmed: frozenset[str] = frozenset()
    # Confirmed accounts that resources outside of this pass name, too.
    holders: Mapping[str, str] = field(default_factory=dict)
    # Accounts to be written to resources whose backend id Waldur has lost, None before they were looked for.
    lost: tuple[ClaimAccount, ...] | None = None
    # Accounts whose used amounts were asked for.
    usage_asked: frozenset[str] = frozenset()
    # The lists of QoS and partitions that were asked for, too.
    names_asked: frozenset[Part] = frozenset()
    # The facts are about all resources of the offering.
    is_whole: bool = True
    # The deletion of offering users is carried on, but for those who are readmitted.
    ends_users: bool = False
    # Users, by uuid, whose deletion Waldur did not let begin.
    readmitted: frozenset[str] = frozenset()
    # By the person's uuid, the username under which they were last in step.
    known_names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def departing(self) -> Sequence[OfferingUser]:
        """Return the offering users who leave all accounts now, for Waldur wants theirs deleted."""
        return departures.departing(self.waldur.users, self.readmitted) if self.ends_users else ()

    @cached_property
    def named(self) -> frozenset[str]:
        """Return the accounts that the offering's resources name."""
        return named_accounts([*self.waldur.resources, *self.waldur.in_progress])

    @cached_property
    def belonging(self) -> Mapping[str, frozenset[str]]:
        """Return who belongs into each account or may stay there, as far as its team is known."""
        found: dict[str, frozenset[str]] = {}
        for case in cases(self)[0]:
            inside = case.members.wanted | case.members.kept
            found[case.account] = found.get(case.account, frozenset()) | inside
        return found

    def lost_accounts(self) -> list[ClaimAccount]:
        """Return accounts that may belong to resources without a backend id; Waldur has to say who else names them."""
        taken = self.named | frozenset(self.foreign)
        return lost.claims_of_lost_ids(self.waldur.resources, self.rules.offering, self.snapshot, taken)


@dataclass(frozen=True)
class PlannedSync:
    """The plans of a pass and the facts that they were made from."""

    facts: SyncFacts
    plans: Sequence[ResourcePlan]
    # By resource uuid; refused where what Waldur says of it can never be on the cluster.
    specs: Mapping[str, Spec]
    # By resource uuid: its team could not be read.
    unread: Mapping[str, WaldurError] = field(default_factory=dict)

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        actions = (action for plan in self.plans for action in plan.actions)
        first = [*(self.facts.lost or ()), *self.openings]
        return tuple(dict.fromkeys([*first, *membership.in_order(actions)]))

    @cached_property
    def openings(self) -> Sequence[BeginDeletion]:
        """Return what is reported to Waldur of those who are to be removed permanently, before they are. Who is in an
        account that is left as it is now, and is removed from none, waits.
        """
        gone = membership.leavers(action for plan in self.plans for action in plan.actions)
        removed = set(map(fold, gone))
        opened = departures.openings(self.facts.departing)
        return [opening for opening in opened if fold(opening.username) in removed]

    @cached_property
    def unmanaged(self) -> str:
        """Return whom the site's setting keeps in accounts though Waldur does not know them, in words; empty where
        there is none.
        """
        kept = {plan.account: plan.unmanaged for plan in self.plans if plan.unmanaged}
        if not kept:
            return ""
        lines = [f"{account}: {', '.join(sorted(users)[:SHOWN])}" for account, users in sorted(kept.items())]
        people = len(frozenset[str]().union(*kept.values()))
        more = "; ..." if len(kept) > SHOWN or any(len(users) > SHOWN for users in kept.values()) else ""
        return (
            f"{people} user{'s' if people > 1 else ''} whom Waldur does not know stay{'' if people > 1 else 's'} in "
            f"{len(kept)} account{'s' if len(kept) > 1 else ''} (preserve_unmanaged_backend_users): "
            f"{'; '.join(lines[:SHOWN])}{more}"
        )

    @property
    def snapshot(self) -> Snapshot:
        return self.facts.snapshot

    @property
    def is_whole(self) -> bool:
        return self.facts.is_whole

    @cached_property
    def context(self) -> PolicyContext:
        """Return the accounts that Waldur names: those of the resources, and of their projects and customers. Closing
        one to its members (`restrict_member_access`) is deliberate.
        """
        specs = (spec for spec in self.specs.values() if isinstance(spec, AllocationSpec))
        hierarchy = {ancestor.name for spec in specs for ancestor in spec.ancestors}
        closed = (plan.account for plan in self.plans if plan.case.resource.restrict_member_access)
        derived: dict[str, bool] = {}
        for plan in self.plans:
            if isinstance(spec := self.specs.get(plan.case.resource.uuid), AllocationSpec):
                derived |= allocations.derived(
                    plan.case.resource, self.facts.rules.offering, spec, self.snapshot
                )
        return PolicyContext(
            named=frozenset({*self.facts.named, *map(fold, hierarchy)}),
            unplanned=named_accounts(left_alone(self.facts.waldur)),
            derived=derived,
            deliberate=frozenset(closed),
            renamed=self.renamed,
            has_gaps=bool(
                self.unread or self.facts.rules.no_removal_reason or self.facts.waldur.accounts is None
            ),
            waldur_is_empty=not (self.facts.waldur.resources or self.facts.waldur.in_progress),
        )

    @cached_property
    def renamed(self) -> Mapping[tuple[str, str], str]:
        """Return who joins an account under a new name and is in it under an old one: that, by account and new name."""
        now = {
            user.user_uuid: fold(user.cluster_name) for user in self.facts.waldur.users if user.cluster_name
        }
        changed = {
            now[person]: before
            for person, before in self.facts.known_names.items()
            if person in now and now[person] != before
        }
        joining = only(AddMember, self.actions) if changed else []
        return {
            (action.account, action.user): before
            for action in joining
            if (before := changed.get(fold(action.user))) and before in self.snapshot.users_of(action.account)
        }

    @property
    def names_in_step(self) -> Mapping[str, str]:
        """Return by the person's uuid the usernames that people have now, but of those who are still in an account
        under an old one, and where that differs from what is known.
        """
        seen, known = self.facts.snapshot, self.facts.known_names
        found = {}
        for user in self.facts.waldur.users:
            name, before = fold(user.cluster_name), known.get(user.user_uuid, "")
            if name and name != before and not (before and seen.accounts_of(before) & self.facts.named):
                found[user.user_uuid] = name
        return found

    @property
    def refused(self) -> Mapping[str, PlanRefused]:
        return {uuid: spec for uuid, spec in self.specs.items() if isinstance(spec, PlanRefused)}

    @cached_property
    def leaving(self) -> frozenset[str]:
        """Return the accounts that members leave."""
        return membership.leaving_accounts(self.plans)

    @property
    def used_names(self) -> frozenset[Part]:
        """Return the lists that show whether the cluster has the QoS and partitions that members would get."""
        joins = only(AddMember, self.actions)
        used = {Part.PARTITIONS: any(action.partitions for action in joins)}
        used |= {Part.QOS: bool(only(SetMemberQos, self.actions)) or any(action.qos for action in joins)}
        return frozenset(part for part, is_used in used.items() if is_used)

    def again(self, plans: Iterable[ResourcePlan], snapshot: Snapshot) -> list[ResourcePlan]:
        """Plan these resources again for another state of the cluster."""
        return membership.plans([plan.case for plan in plans], self.specs, self.facts.rules, snapshot)


def plan(facts: SyncFacts) -> PlannedSync:
    """Return one plan for each resource whose team is known. Raises BackendUnavailable where the accounts were not
    read, and AccountsLost where so many are missing that the cluster is at fault.
    """
    if facts.is_whole:
        made = (resource for resource in facts.waldur.resources if resource.state is ResourceState.OK)
        require_accounts(named_accounts(made), facts.snapshot)
    found, unread = cases(facts)
    specs = {
        case.resource.uuid: _spec(case, facts)
        for case in found
        if not membership.skip(case, facts.rules, facts.snapshot)
    }
    return PlannedSync(facts, membership.plans(found, specs, facts.rules, facts.snapshot), specs, unread)


def accounts_left(facts: SyncFacts, seen: Snapshot, username: str) -> frozenset[str]:
    """Return the accounts of the offering that a leaver of this name on the cluster has to leave yet. Where another
    person of the same name belongs, that one stays.
    """
    name = fold(username)
    inside = seen.accounts_of(name) & facts.named if name else frozenset()
    return frozenset(account for account in inside if name not in facts.belonging.get(account, ()))


def cases(facts: SyncFacts) -> tuple[list[ResourceCase], dict[str, WaldurError]]:
    """Return each resource that names an account with its people, and the failed reads of teams by resource uuid."""
    waldur = facts.waldur
    # Who waits for a new name goes on under the old one: the new one cannot log in yet.
    people = posix_accounts.by_directory_name(waldur.users)
    users = {user.user_uuid: user for user in people}
    named = [resource for resource in waldur.resources if resource.backend_id]
    unread = {r.uuid: team for r in named if isinstance(team := waldur.teams.get(r.uuid), WaldurError)}
    also = {fold(r.backend_id): f"resource {r.uuid}" for r in left_alone(waldur) if r.backend_id}
    also |= {**facts.foreign, **facts.holders}
    names = frozenset(fold(user.username) for user in (*waldur.users, *people))
    departing = frozenset(user.uuid for user in facts.departing)
    # By their entries these names are theirs, whomever Waldur has given them to since.
    leaving = frozenset(fold(user.directory_name) for user in facts.departing if user.directory_name)
    no_orders: frozenset[OrderType] = frozenset()
    found = []
    for resource in named:
        team = waldur.teams.get(resource.uuid, ())
        if isinstance(team, WaldurError):
            continue
        known = waldur.accounts
        accounts = None if known is None else known.get(resource.project_uuid, ProjectAccounts())
        members = desired_members(
            team,
            users,
            accounts,
            restricted=resource.restrict_member_access,
            known=names,
            departing=departing,
        )
        if leaving:
            members = replace(members, kept=members.kept - leaving)
        orders = waldur.orders.get(resource.uuid, no_orders)
        account = fold(resource.backend_id)
        found.append(
            ResourceCase(
                resource,
                members,
                orders,
                None
                if waldur.user_limits is None
                else limits_by_username(waldur.user_limits.get(resource.uuid, {}), people),
                also_named_by=also.get(account, ""),
                blocked=facts.blocked.get(account, NO_MEMBERS),
            )
        )
    return found, unread


def left_alone(waldur: MembershipFacts) -> list[Resource]:
    """Return the resources that an order is at work on, or whose team could not be read: no pass plans anything for
    them.
    """
    unread = (r for r in waldur.resources if isinstance(waldur.teams.get(r.uuid), WaldurError))
    return [*waldur.in_progress, *unread]


def _spec(case: ResourceCase, facts: SyncFacts) -> Spec:
    """Return the desired account, or why there can be none. Without usable slugs it keeps its parent."""
    rules, snapshot = facts.rules.offering, facts.snapshot
    members = tuple(sorted(case.members.wanted))
    try:
        desired = allocations.allocation(case.resource, rules, case.account, snapshot, members=members)
        return facts.canonical(desired, snapshot)
    except PlanRefused as refused:
        desired = AllocationSpec(
            AccountSpec(case.account, snapshot.accounts[case.account].parent or ""),
            members=members,
            requested=allocations.requested_state(case.resource, rules),
            notes=(f"its place is not looked at: {refused}",),
        )
    try:
        return facts.canonical(desired, snapshot)
    except PlanRefused as refused:
        return refused


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
    are still in, and that are not those of another person of the same name.
    """
    leaving = [user for user in facts.departing if user.state in departures.UNDER_WAY]
    if not leaving:
        return []
    left = {user.uuid: accounts_left(facts, seen, user.cluster_name) for user in leaving}
    # Whose deletion has not begun may still stay, but for those who are in nothing that could keep them.
    others = (user for user in facts.waldur.users if user.uuid not in left or left[user.uuid])
    staying = departures.staying_names(others, facts.readmitted).union(*facts.belonging.values())

    def departure(user: OfferingUser) -> Departure:
        name, inside = fold(user.cluster_name), left[user.uuid]
        fault = unremovable.get(name) or (None if inside else departures.unknown_entry(user))
        return Departure(user, inside, fault, is_shared=name in staying)

    return [departure(user) for user in leaving]


def desired_groups(
    sync: PlannedSync, decision: Decision, errors: Mapping[str, SiteAgentError]
) -> DesiredGroups:
    """Return the groups of the accounts that are in step, and ours. `errors`: of those that are not, by resource uuid.

    A group is complete where only the wanted members are in the account: others may then leave the group.
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
        may_stay = case.members.kept or unclear or sync.facts.rules.no_removal_reason
        is_shared = case.also_named_by or case.shared_with
        if plan.account not in held and case.members.complete and not may_stay and not is_shared:
            complete.add(plan.account)
    known = None
    if sync.facts.rules.keeps_unmanaged:
        known = frozenset[str]().union(*{plan.case.members.known for plan in in_step})
    return DesiredGroups(members, complete=complete, known=known)
