# SPDX-License-Identifier: MIT
"""The everyday plan: each resource's account keeps the members, state, limits and place that Waldur says.

All resources of an offering are planned together: who leaves one account may default to another. Nothing is
removed for what was not read, and an account that two resources or offerings name is nobody's to clear.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from agent.core.account_names import fold
from agent.core.actions import (
    Action,
    ClusterAction,
    Kind,
    Phase,
    SetUserLimits,
)
from agent.core.errors import PlanRefused, SiteAgentError
from agent.core.members import DesiredMembers
from agent.core.model import AllocationSpec, OrderType, Part, Resource, ResourceState, Snapshot
from agent.core.units import targets_of
from agent.core.waldur_actions import (
    FailResource,
    MarkResourceOk,
    RefreshLastSync,
    ReportLimits,
    ReportMetadata,
)
from agent.plan import accounts, shared_limits, standing_accounts
from agent.plan.allocations import OfferingRules
from agent.plan.shared_limits import LimitRules

ENDING = "it is being terminated"
STATE_KEY = "account_state"
# By whether the account takes new jobs.
STATES = {True: "open", False: "closed"}
LEAVING = (Phase.BLOCK_MEMBERS, Phase.CANCEL_JOBS, Phase.REMOVE_MEMBERS)


@dataclass(frozen=True, slots=True)
class MembershipRules:
    """What the site wants of every allocation of one offering. `sync_every`: how old a last sync may get.

    `nobody_leaves`: why nobody is removed in this pass, empty when people may be.
    """

    offering: OfferingRules
    limits: LimitRules
    nobody_leaves: str = ""
    sync_every: timedelta = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class ResourceCase:
    """A resource with all that Waldur knows about it.

    `orders`: kinds of its orders that are under way. `user_limits` by username, None where they are not known.
    `blocked`: whom we have blocked in its account to remove them.
    `also_named_by`: a resource or offering that names the same account and whose people are not known here;
    `shared_with`: one whose people are, and count as this one's. Both empty for an account that is its own.
    """

    resource: Resource
    members: DesiredMembers
    orders: frozenset[OrderType] = frozenset()
    user_limits: Mapping[str, Mapping[str, Any]] | None = None
    also_named_by: str = ""
    shared_with: str = ""
    blocked: frozenset[str] = frozenset()

    @property
    def account(self) -> str:
        return fold(self.resource.backend_id)

    @property
    def reason(self) -> str:
        return f"resource {self.resource.uuid}"


@dataclass(frozen=True, slots=True)
class ResourcePlan:
    """The actions of one resource; `skipped` says why nothing at all is planned for it now, `refusal` what is wrong
    with it in itself.
    """

    case: ResourceCase
    actions: tuple[Action, ...] = ()
    spec: AllocationSpec | None = None
    notes: tuple[str, ...] = ()
    skipped: str = ""
    refusal: PlanRefused | None = None

    @property
    def account(self) -> str:
        return self.case.account

    def cluster_actions(self) -> tuple[ClusterAction, ...]:
        return tuple(action for action in self.actions if isinstance(action, ClusterAction))


@dataclass(slots=True)
class _Draft:
    """A plan that is being made."""

    case: ResourceCase
    spec: AllocationSpec
    notes: list[str]
    built: list[ClusterAction] = field(default_factory=list)
    kept: list[Action] = field(default_factory=list)


def skip(
    case: ResourceCase, rules: MembershipRules, snapshot: Snapshot, hierarchy: Set[str] = frozenset()
) -> str:
    """Why nothing is planned for a resource now, empty when something may be. `hierarchy`: accounts of projects and
    customers, which are nobody's allocation whatever a backend id says.
    """
    if not case.account:
        return "it names no account"
    if OrderType.TERMINATE in case.orders:
        return ENDING
    standing = snapshot.accounts.get(case.account)
    if standing is None:
        return f"account {case.account} is not on the cluster {snapshot.cluster}"
    if not standing.parent or case.account == rules.offering.default_account:
        return (
            f"account {case.account} is no allocation: it is what the site's own accounts and users stand on"
        )
    if case.account in hierarchy or snapshot.children_of(case.account):
        return (
            f"account {case.account} is no allocation: it is a project's or customer's, or has accounts below it. "
            "Correct the backend id of the resource"
        )
    return ""


def plans(
    cases: Sequence[ResourceCase],
    specs: Mapping[str, AllocationSpec | PlanRefused],
    rules: MembershipRules,
    snapshot: Snapshot,
) -> list[ResourcePlan]:
    """One plan for each resource, `specs` by resource uuid. Raises BackendUnavailable where the tree was not read."""
    snapshot.require(Part.ACCOUNTS, Part.ASSOCIATIONS)
    drafts: list[_Draft] = []
    skipped = []
    wanted = (spec for spec in specs.values() if isinstance(spec, AllocationSpec))
    hierarchy = {ancestor.name for spec in wanted for ancestor in spec.ancestors}
    for case in merged(cases):
        spec = specs.get(case.resource.uuid)
        if why := skip(case, rules, snapshot, hierarchy):
            skipped.append(ResourcePlan(case, skipped=why))
        elif isinstance(spec, PlanRefused) or spec is None:
            skipped.append(ResourcePlan(case, refusal=spec))
        else:
            drafts.append(_drafted(case, spec, rules, snapshot))
    _give_defaults(drafts, snapshot)
    leaving = _departures(drafts, rules, snapshot)
    made = {
        draft.case.resource.uuid: _finished(draft, leaving.get(draft.case.account, [])) for draft in drafts
    } | {plan.case.resource.uuid: plan for plan in skipped}
    return [made[case.resource.uuid] for case in cases]


def in_order(actions: Iterable[Action]) -> tuple[Action, ...]:
    """All that is added and changed before anybody leaves: a default account moves to one that was joined before."""
    distinct = tuple(dict.fromkeys(actions))
    gone = leavers(distinct)
    return tuple(sorted(distinct, key=lambda action: is_departure(action, gone)))


def leavers(actions: Iterable[Action]) -> frozenset[str]:
    """Those who leave any account."""
    ended = (thing for action in actions for thing in action.things(action.ends))
    return frozenset(thing.of for thing in ended if thing.kind is Kind.MEMBER)


def is_departure(action: Action, gone: Set[str]) -> bool:
    """Whether it is a step of somebody's leaving; `gone` as of `leavers`."""
    if not isinstance(action, ClusterAction):
        return False
    loses_default = any(
        thing.kind is Kind.DEFAULT and thing.of in gone for thing in action.things(action.ends)
    )
    return loses_default or action.phase in LEAVING


def leaving_accounts(planned: Iterable[ResourcePlan]) -> frozenset[str]:
    """The accounts that somebody leaves: whose jobs must be known before that."""
    actions = (action for plan in planned for action in plan.cluster_actions())
    ended = (thing for action in actions for thing in action.things(action.ends))
    return frozenset(thing.account for thing in ended if thing.kind in (Kind.MEMBER, Kind.JOBS))


def closing(
    plan: ResourcePlan, rules: MembershipRules, now: datetime, *, fault: SiteAgentError | None = None
) -> tuple[Action, ...]:
    """What Waldur is told in the end: in step, or broken by a `fault` of its own that time will not mend."""
    resource, reason = plan.case.resource, plan.case.reason
    if fault is not None:
        message = str(fault)
        told = resource.state is ResourceState.ERRED and resource.error_message == message
        return () if told else (FailResource(resource=resource.uuid, message=message, reason=reason),)
    found: list[Action] = []
    if resource.state is ResourceState.ERRED:
        found.append(
            MarkResourceOk(resource=resource.uuid, reason=f"account {plan.account} agrees with Waldur")
        )
    if resource.last_sync is None or now - resource.last_sync >= rules.sync_every:
        found.append(RefreshLastSync(resource=resource.uuid, reason=reason))
    return tuple(found)


def merged(cases: Sequence[ResourceCase]) -> list[ResourceCase]:
    """Cases in which everybody who belongs into an account does, whichever of its resources names it."""
    of_account: dict[str, list[ResourceCase]] = {}
    for case in cases:
        of_account.setdefault(case.account, []).append(case)
    return [_joined(case, of_account[case.account] if case.account else ()) for case in cases]


def _joined(case: ResourceCase, naming: Iterable[ResourceCase]) -> ResourceCase:
    members, also, shared = case.members, case.also_named_by, case.shared_with
    for other in naming:
        if other is not case:
            members = members.joined(other.members)
            also = also or other.also_named_by
            shared = shared or f"resource {other.resource.uuid}"
    return replace(case, members=members, also_named_by=also, shared_with=shared)


def _drafted(case: ResourceCase, spec: AllocationSpec, rules: MembershipRules, snapshot: Snapshot) -> _Draft:
    """All but the departures."""
    draft = _Draft(case, spec, list(spec.notes))
    reason = case.reason
    draft.built += standing_accounts.returned(spec, case.blocked, snapshot, reason)
    if other := case.also_named_by or case.shared_with:
        draft.built += accounts.missing_members(spec, snapshot, reason)
        draft.notes.append(
            f"account {case.account} is also named by {other}: its place, state and limits are left alone, and nobody "
            "is removed whom the other may want, until one of them lets go"
        )
        return draft
    draft.built += standing_accounts.place(spec, snapshot, reason)
    draft.built += accounts.missing_members(spec, snapshot, reason)
    states = list(standing_accounts.state(spec, snapshot, reason))
    draft.built += states
    draft.built += _limits(draft, rules, snapshot)
    draft.built += _user_limits(draft, rules, snapshot)
    for action in states:
        snapshot = action.applied_to(snapshot)
    draft.kept += _report(draft, rules, snapshot)
    return draft


def _give_defaults(drafts: Iterable[_Draft], snapshot: Snapshot) -> None:
    """Who has lost the default account gets one of the accounts that are theirs, the first by name."""
    given: set[str] = set()
    for draft in sorted(drafts, key=lambda draft: draft.case.account):
        for action in standing_accounts.missing_defaults(draft.spec, snapshot, draft.case.reason):
            if action.user not in given:
                given.add(action.user)
                draft.built.append(action)


def _departures(
    drafts: Iterable[_Draft], rules: MembershipRules, snapshot: Snapshot
) -> dict[str, list[ClusterAction]]:
    drafts = list(drafts)
    leavers = {}
    for draft in drafts:
        members = draft.case.members
        stale = snapshot.users_of(draft.case.account) - members.wanted - members.kept
        if not stale or draft.case.also_named_by:
            continue
        if unclear := members.unclear(stale):
            draft.notes.append(
                f"{', '.join(sorted(unclear)[:5])} ({len(unclear)} in all) stay for now: a member without a name may "
                "be meant, and Waldur knows nobody else who is called so"
            )
            stale -= unclear
            if not stale:
                continue
        if why := rules.nobody_leaves or _nobody_leaves(members, snapshot):
            draft.notes.append(f"{len(stale)} who are not of its team stay for now: {why}")
        else:
            leavers[draft.case.account] = stale
    if not leavers:
        return {}
    grown = accounts.grown(snapshot, [action for draft in drafts for action in draft.built])
    return standing_accounts.departures(
        leavers, grown, default_account=rules.offering.default_account, reason="not of its team any more"
    )


def _nobody_leaves(members: DesiredMembers, snapshot: Snapshot) -> str:
    if not members.complete:
        return "Waldur's service and course accounts could not be read"
    if Part.DEFAULT_ACCOUNTS not in snapshot.complete:
        return "the default accounts were not read"
    return ""


def _limits(draft: _Draft, rules: MembershipRules, snapshot: Snapshot) -> list[ClusterAction]:
    if not rules.limits.from_waldur or draft.case.orders or Part.TRES not in snapshot.complete:
        return []
    try:
        wanted = shared_limits.wanted(draft.case.resource.limits, rules.limits, snapshot.tres)
    except PlanRefused as refused:
        draft.notes.append(f"its limits are left as they are: {refused}")
        return []
    standing = snapshot.accounts[draft.case.account]
    for name, value in sorted(wanted.items()):
        now, least = standing.limits.get(name), standing.least.get(name)
        if now is not None and least is not None and value < now <= least:
            draft.notes.append(f"limit {name}={value} is not reached: {least} of it is spent already")
            del wanted[name]
    return accounts.limits(draft.case.account, wanted, snapshot, draft.case.reason)


def _user_limits(draft: _Draft, rules: MembershipRules, snapshot: Snapshot) -> Iterator[SetUserLimits]:
    case = draft.case
    if case.user_limits is None or case.resource.restrict_member_access or Part.TRES not in snapshot.complete:
        return
    if Part.USER_LIMITS not in snapshot.complete:
        if any(case.user_limits.values()):
            draft.notes.append(f"limits of single users are left out: cluster {snapshot.cluster} shows none")
        return
    components = rules.limits.components
    wanted: dict[str, Mapping[str, int]] = {}
    for user in sorted(set(case.user_limits) & set(draft.spec.members)):
        try:
            found = shared_limits.of_user(case.user_limits[user], components)
        except PlanRefused as refused:
            draft.notes.append(f"limits of {user} are left as they are: {refused}")
            wanted[user] = snapshot.user_limits.get((case.account, user), {})
        else:
            wanted[user] = {tres: value for tres, value in found.items() if tres in snapshot.tres}
    known = {tres for component in components for tres in targets_of(component)}
    leaving = snapshot.users_of(case.account) - case.members.wanted - case.members.kept
    for action in standing_accounts.user_limits(case.account, wanted, known, snapshot, case.reason):
        if action.user not in leaving:
            yield action


def _report(draft: _Draft, rules: MembershipRules, snapshot: Snapshot) -> Iterator[Action]:
    case = draft.case
    resource = case.resource
    if not rules.limits.from_waldur and not case.orders:
        on_cluster = snapshot.accounts[case.account].limits
        limits = shared_limits.shown(resource.limits, on_cluster, rules.limits)
        if limits is not None:
            yield ReportLimits(
                resource=resource.uuid, limits=tuple(sorted(limits.items())), reason=case.reason
            )
    now, shown = resource.backend_metadata, _shown(draft, snapshot)
    if any(now.get(key) != value for key, value in shown.items()):
        metadata = json.dumps({**now, **shown}, sort_keys=True)
        yield ReportMetadata(resource=resource.uuid, metadata=metadata, reason=case.reason)


def _shown(draft: _Draft, snapshot: Snapshot) -> Mapping[str, str]:
    """What Waldur shows of the account once it is as it shall be: its QoS, and whether it takes jobs where that follows
    Waldur, or has, or is all that there is to show.
    """
    account, found = draft.case.account, {}
    if qos := _qos_of(account, snapshot):
        found["qos"] = qos
    takes_jobs, is_told = draft.spec.state.submission, draft.spec.state.is_told
    was_told = draft.case.resource.backend_metadata.get(STATE_KEY) in STATES.values()
    if takes_jobs is not None or is_told or was_told:
        is_open = snapshot.accounts[account].submit_limit != 0 if takes_jobs is None else takes_jobs
        found[STATE_KEY] = STATES[is_open]
    return found


def _qos_of(account: str, snapshot: Snapshot) -> str:
    """The QoS to show: the default one, or the only one."""
    names = snapshot.qos_of(account)
    return snapshot.default_qos_of(account) or (min(names) if len(names) == 1 else "")


def _finished(draft: _Draft, leaving: Sequence[ClusterAction]) -> ResourcePlan:
    if draft.case.members.nameless:
        draft.notes.append(f"{draft.case.members.nameless} of its team have no username here yet")
    return ResourcePlan(
        draft.case, (*draft.built, *leaving, *draft.kept), draft.spec, tuple(dict.fromkeys(draft.notes))
    )
