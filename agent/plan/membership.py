# SPDX-License-Identifier: MIT
"""The everyday plan: each resource's account keeps the members, state, limits and place that Waldur says.

All resources of an offering are planned together: who leaves one account may default to another. Nothing is
removed for what was not read, and an account that two resources or offerings name is cleared by neither.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

from agent.core.account_names import fold
from agent.core.actions import (
    Action,
    ClusterAction,
    ObjectKind,
    Phase,
    RemoveMember,
    objects_ended,
    only,
)
from agent.core.errors import PlanRefused, SiteAgentError, words_for_customers
from agent.core.members import NO_MEMBERS, DesiredMembers, ProjectAccounts
from agent.core.model import (
    AllocationSpec,
    OfferingUser,
    OrderType,
    Part,
    Resource,
    ResourceState,
    Snapshot,
    TeamMember,
)
from agent.core.units import targets_of
from agent.core.waldur_actions import (
    FailResource,
    MarkResourceOk,
    RefreshLastSync,
    ReportLimits,
    ReportMetadata,
    WaldurAction,
)
from agent.plan import accounts, existing_accounts, shared_limits
from agent.plan.allocations import OfferingRules
from agent.plan.shared_limits import LimitRules

ENDING = "it is being terminated"
STATE_KEY = "account_state"
LEFT_TEAM = "not of its team any more"
CLOSED = "Waldur has closed the resource to its members (restrict_member_access)"
# By whether the account takes new jobs.
STATES = {True: "open", False: "closed"}
# Waldur asks for what was not seen for an hour.
SYNC_SPREAD = 0.5
LEAVING = (Phase.BLOCK_MEMBERS, Phase.CANCEL_JOBS, Phase.REMOVE_MEMBERS)


@dataclass(frozen=True, slots=True)
class MembershipRules:
    """What the site wants of every allocation of one offering."""

    offering: OfferingRules
    limits: LimitRules
    # Why no member is removed in this pass, empty when members may be.
    no_removal_reason: str = ""
    # Users whom Waldur does not know stay where they are.
    keeps_unmanaged: bool = False
    # How old a last sync may get, and by SYNC_SPREAD older.
    sync_every: timedelta = timedelta(minutes=30)
    # Waldur may show how commands were called.
    with_details: bool = True


@dataclass(frozen=True, slots=True)
class ResourceCase:
    """A resource with all that Waldur knows about it."""

    resource: Resource
    members: DesiredMembers
    # Kinds of its orders that are under way.
    orders: frozenset[OrderType] = frozenset()
    # By username, None where they are not known.
    user_limits: Mapping[str, Mapping[str, Any]] | None = None
    # A resource or offering that names the same account and whose people are not known here, empty for an account that
    # is its own.
    also_named_by: str = ""
    # One whose people are known, and count as this one's; empty likewise.
    shared_with: str = ""
    # Whom we have blocked in its account to remove them.
    blocked: frozenset[str] = frozenset()
    # The account's name, as clusters spell it.
    account: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "account", fold(self.resource.backend_id))

    @property
    def reason(self) -> str:
        return f"resource {self.resource.uuid}, {self.resource.name}".rstrip(", ")


@dataclass(frozen=True, slots=True)
class ResourcePlan:
    """The actions of one resource."""

    case: ResourceCase
    actions: tuple[Action, ...] = ()
    spec: AllocationSpec | None = None
    notes: tuple[str, ...] = ()
    # Why nothing at all is planned for it now.
    skipped: str = ""
    # What is wrong with it in itself.
    refusal: PlanRefused | None = None
    # Users whom Waldur does not know, who stay in its account.
    unmanaged: frozenset[str] = frozenset()
    # Why some who are not of its team stay until the next look at the cluster.
    put_off: str = ""

    @property
    def account(self) -> str:
        return self.case.account

    def cluster_actions(self) -> tuple[ClusterAction, ...]:
        return tuple(only(ClusterAction, self.actions))


def skip(
    case: ResourceCase, rules: MembershipRules, snapshot: Snapshot, hierarchy: Set[str] = frozenset()
) -> str:
    """Return why nothing is planned for a resource now, empty when something may be. `hierarchy`: accounts of projects
    and customers, which are no resource's allocation whatever a backend id says.
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
    """Return one plan for each resource, `specs` by resource uuid. Raises BackendUnavailable where the tree was not
    read.
    """
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
            drafts.append(_Draft(case, spec, rules, snapshot))
    # Who has lost the default account gets one of the accounts that are theirs, the first by name.
    given: set[str] = set()
    for draft in sorted(drafts, key=lambda draft: draft.case.account):
        if closed := existing_accounts.closed_defaults(draft.spec, snapshot):
            draft.notes.append(
                f"{', '.join(closed[:5])} ({len(closed)} in all) keep as default an account above "
                f"{draft.case.account} that takes no jobs of theirs (GrpSubmitJobs=0): it is not certain that this "
                "service put it aside. Where nobody wants it, set "
                f"`sacctmgr modify user where name=... set DefaultAccount={draft.case.account}`"
            )
        for action in existing_accounts.missing_defaults(draft.spec, snapshot, draft.case.reason):
            if action.user not in given:
                given.add(action.user)
                if action.before and rules.no_removal_reason:
                    draft.notes.append(
                        f"the default account of {action.user} stays {action.before} for now, where a removal of a "
                        f"partition put it aside: {rules.no_removal_reason}"
                    )
                    continue
                draft.built.append(action)
                if action.before:
                    left = RemoveMember(account=action.before, user=action.user, reason=action.reason)
                    draft.built.append(left)
    _end_put_aside(drafts, given, rules, snapshot)
    leaving = _departures(drafts, rules, snapshot)
    made = {plan.case.resource.uuid: plan for plan in skipped}
    for draft in drafts:
        made[draft.case.resource.uuid] = draft.finished(leaving.get(draft.case.account, []))
    return [made[case.resource.uuid] for case in cases]


def in_order(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Return all that is added and changed before anybody leaves: a default account moves to one that was joined
    before.
    """
    distinct = tuple(dict.fromkeys(actions))
    gone = leavers(distinct)
    return tuple(sorted(distinct, key=lambda action: is_departure(action, gone)))


def leavers(actions: Iterable[Action]) -> frozenset[str]:
    """Return those who leave any account."""
    return frozenset(thing.of for thing in objects_ended(actions, ObjectKind.MEMBER))


def is_departure(action: Action, gone: Set[str]) -> bool:
    """Return whether it is a step of a member's removal; `gone` as of `leavers`."""
    if not isinstance(action, ClusterAction):
        return False
    loses_default = any(thing.of in gone for thing in objects_ended([action], ObjectKind.DEFAULT))
    return loses_default or action.phase in LEAVING


def leaving_accounts(planned: Iterable[ResourcePlan]) -> frozenset[str]:
    """Return the accounts that a member leaves: whose jobs must be known before that."""
    actions = (action for plan in planned for action in plan.actions)
    return frozenset(thing.account for thing in objects_ended(actions, ObjectKind.MEMBER, ObjectKind.JOBS))


def closing(
    plan: ResourcePlan, rules: MembershipRules, now: datetime, *, fault: SiteAgentError | None = None
) -> tuple[WaldurAction, ...]:
    """Return what is reported to Waldur in the end: in step, or broken by a `fault` that time will not change."""
    resource, reason = plan.case.resource, plan.case.reason
    if fault is not None:
        message = words_for_customers(fault, with_details=rules.with_details)
        is_known = resource.state is ResourceState.ERRED and resource.error_message == message
        return () if is_known else (FailResource(resource=resource.uuid, message=message, reason=reason),)
    found: list[WaldurAction] = []
    if resource.state is ResourceState.ERRED:
        found.append(
            MarkResourceOk(resource=resource.uuid, reason=f"account {plan.account} agrees with Waldur")
        )
    # Those of one age come due one after the other: 5,000 requests in one pass would keep everything else waiting.
    due_after = rules.sync_every * (1 + SYNC_SPREAD * crc32(resource.uuid.encode()) / 2**32)
    if resource.last_sync is None or abs(now - resource.last_sync) >= due_after:
        found.append(RefreshLastSync(resource=resource.uuid, reason=reason))
    return tuple(found)


def merged(cases: Sequence[ResourceCase]) -> list[ResourceCase]:
    """Return cases in which everybody who belongs into an account does, whichever of its resources names it."""
    of_account: dict[str, list[ResourceCase]] = {}
    for case in cases:
        of_account.setdefault(case.account, []).append(case)
    found = []
    for case in cases:
        members, also, shared = case.members, case.also_named_by, case.shared_with
        for other in of_account[case.account] if case.account else ():
            if other is not case:
                members = members.joined(other.members)
                also = also or other.also_named_by
                shared = shared or f"resource {other.resource.uuid}"
        is_alone = members is case.members
        found.append(
            case if is_alone else replace(case, members=members, also_named_by=also, shared_with=shared)
        )
    return found


class _Draft:
    """The plan of one resource that is being made: `built` before anybody leaves, `kept` for the end."""

    def __init__(
        self, case: ResourceCase, spec: AllocationSpec, rules: MembershipRules, snapshot: Snapshot
    ) -> None:
        """Plan all but the departures, which are planned together, and default accounts."""
        self.case = case
        self.spec = spec
        self.notes = [*spec.notes, *(f"{why}. It goes on without" for why in spec.not_offered)]
        self.built: list[ClusterAction] = []
        self.kept: list[Action] = []
        self.unmanaged = NO_MEMBERS
        self.put_off = ""
        self._rules = rules
        self._snapshot = snapshot
        reason = case.reason
        self.built += existing_accounts.returned(spec, case.blocked, snapshot, reason)
        if other := case.also_named_by or case.shared_with:
            self.built += accounts.missing_members(spec, snapshot, reason)
            self.notes.append(
                f"account {case.account} is also named by {other}: its place, state and limits are left alone, and "
                "no member is removed whom the other may want, until only one of them names it"
            )
            return
        self.built += existing_accounts.place(spec, snapshot, reason)
        self.built += accounts.missing_members(spec, snapshot, reason)
        self.built += existing_accounts.associations(spec, snapshot, reason)
        states = list(existing_accounts.state(spec, snapshot, reason))
        self.built += states
        self.built += self._limits()
        self.built += self._user_limits()
        for action in states:
            self._snapshot = action.applied_to(self._snapshot)
        self.kept += self._report()

    def finished(self, leaving: Sequence[ClusterAction]) -> ResourcePlan:
        """Return the plan, with the steps by which members leave."""
        if self.case.members.nameless:
            self.notes.append(f"{self.case.members.nameless} of its team have no username here yet")
        actions = (*self.built, *leaving, *self.kept)
        notes = tuple(dict.fromkeys(self.notes))
        return ResourcePlan(
            self.case, actions, self.spec, notes, unmanaged=self.unmanaged, put_off=self.put_off
        )

    def _limits(self) -> list[ClusterAction]:
        case, rules, snapshot = self.case, self._rules.limits, self._snapshot
        if case.orders or Part.TRES not in snapshot.complete:
            return []
        spending = shared_limits.spending_of(
            case.resource, rules.components, from_waldur=rules.from_waldur, periodic=rules.periodic
        )
        self.notes += spending.notes
        wanted: dict[str, int] = {}
        try:
            if rules.from_waldur:
                wanted |= shared_limits.wanted(case.resource.limits, rules, snapshot.tres, spending.caps)
        except PlanRefused as refused:
            self.notes.append(f"its limits are left as they are: {refused}")
        try:
            wanted |= shared_limits.prepaid(case.resource, rules, snapshot.tres, spending.caps)
        except PlanRefused as refused:
            self.notes.append(f"its prepaid limits are left as they are: {refused}")
        standing = snapshot.accounts[case.account]
        for name, value in sorted(wanted.items()):
            now, least = standing.limits.get(name), standing.least.get(name)
            if now is not None and least is not None and value < now <= least:
                self.notes.append(f"limit {name}={value} is not reached: {least} of it is spent already")
                del wanted[name]
        return accounts.limits(case.account, wanted, snapshot, case.reason)

    def _user_limits(self) -> list[ClusterAction]:
        case, components, snapshot = self.case, self._rules.limits.components, self._snapshot
        asked = case.user_limits
        if asked is None or case.resource.restrict_member_access or Part.TRES not in snapshot.complete:
            return []
        if Part.USER_LIMITS not in snapshot.complete:
            if any(asked.values()):
                self.notes.append(
                    f"limits of single users are skipped: cluster {snapshot.cluster} lists none"
                )
            return []
        wanted: dict[str, Mapping[str, int]] = {}
        for user in sorted(set(asked) & set(self.spec.members)):
            try:
                found = shared_limits.of_user(asked[user], components)
            except PlanRefused as refused:
                self.notes.append(f"limits of {user} are left as they are: {refused}")
                wanted[user] = snapshot.user_limits.get((case.account, user), {})
            else:
                wanted[user] = {tres: value for tres, value in found.items() if tres in snapshot.tres}
        known = {tres for component in components for tres in targets_of(component)}
        leaving = case.members.stale(snapshot.users_of(case.account))
        changed = existing_accounts.user_limits(case.account, wanted, known, snapshot, case.reason)
        return [action for action in changed if action.user not in leaving]

    def _report(self) -> Iterator[Action]:
        """Yield what is reported to Waldur of an account that is as it shall be: its limits where the cluster owns
        these, its QoS, and whether it takes jobs where that follows Waldur, or has, or is all that there is to report.
        """
        case, spec, snapshot = self.case, self.spec, self._snapshot
        resource, account = case.resource, snapshot.accounts[case.account]
        limits, notes = _limits_report(case, self._rules, snapshot)
        self.notes += notes
        yield from limits
        now = resource.backend_metadata
        reported: dict[str, str] = {}
        names = snapshot.qos_of(case.account)
        # The default QoS, or the only one.
        if qos := snapshot.default_qos_of(case.account) or (min(names) if len(names) == 1 else ""):
            reported["qos"] = qos
        takes_jobs = spec.state.submission
        follows = (
            takes_jobs is not None or spec.state.is_always_reported or now.get(STATE_KEY) in STATES.values()
        )
        if follows and not spec.state.is_unclear:
            reported[STATE_KEY] = STATES[account.submit_limit != 0 if takes_jobs is None else takes_jobs]
        if any(now.get(key) != value for key, value in reported.items()):
            metadata = json.dumps(reported, sort_keys=True)
            yield ReportMetadata(resource=resource.uuid, metadata=metadata, reason=case.reason)


def limit_reports(
    cases: Sequence[ResourceCase], rules: MembershipRules, snapshot: Snapshot
) -> list[ResourcePlan]:
    """Return one plan for each resource: what Waldur is to show of its account's limits, and nothing else."""
    snapshot.require(Part.ACCOUNTS)
    found = []
    for case in merged(cases):
        why = skip(case, rules, snapshot)
        if other := case.also_named_by or case.shared_with:
            why = why or f"account {case.account} is also named by {other}: whose limits it has is unknown"
        reports, notes = ((), ()) if why else _limits_report(case, rules, snapshot)
        found.append(ResourcePlan(case, reports, notes=notes, skipped=why))
    return found


def _limits_report(
    case: ResourceCase, rules: MembershipRules, snapshot: Snapshot
) -> tuple[tuple[ReportLimits, ...], tuple[str, ...]]:
    """Return the report of an account's limits where the cluster owns these and they differ, and a note where this
    Waldur has no call for it. While an order is at work on them Waldur's may be newer.
    """
    resource = case.resource
    if rules.limits.from_waldur or case.orders:
        return (), ()
    limits = shared_limits.for_waldur(resource.limits, snapshot.accounts[case.account].limits, rules.limits)
    if limits is None:
        return (), ()
    if not rules.offering.can_show_limits:
        note = (
            "limits differ, and this Waldur has no call to report those of the cluster: "
            f"{_limits_text(limits)} on the cluster, {_limits_text(resource.limits)} in Waldur"
        )
        return (), (note,)
    report = ReportLimits(resource=resource.uuid, limits=tuple(sorted(limits.items())), reason=case.reason)
    return (report,), ()


def _limits_text(limits: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(limits.items())) or "none"


def _end_put_aside(
    drafts: Sequence[_Draft], given: set[str], rules: MembershipRules, snapshot: Snapshot
) -> None:
    """Plan the end of associations that a removal of a partition left in an account above: its last step failed, or the
    member left meanwhile. Who gets a default account in place of it is `given` one; who leaves now waits for a later
    pass. Whom Waldur does not know stays, where the site wants that: it may be somebody's work with the same marks.
    """
    if Part.DEFAULT_ACCOUNTS not in snapshot.complete:
        return
    for draft in sorted(drafts, key=lambda draft: draft.case.account):
        for row in existing_accounts.put_aside(draft.spec, snapshot):
            others = snapshot.accounts_of(row.user) - {row.account}
            is_leaving = any(
                row.user in each.case.members.stale(frozenset({row.user}))
                for each in drafts
                if each.case.account in others
            )
            is_kept = rules.keeps_unmanaged and row.user not in draft.case.members.known
            if row.user in given or is_leaving or is_kept:
                continue
            given.add(row.user)
            if rules.no_removal_reason:
                draft.notes.append(
                    f"the association of {row.user} in {row.account}, which a removal of a partition left, stays for "
                    f"now: {rules.no_removal_reason}"
                )
                continue
            moved, removed = accounts.departures(
                row.account,
                [row.user],
                snapshot,
                default_account=rules.offering.default_account,
                reason=f"{draft.case.reason}: it was left by a removal of a partition",
            )
            draft.built += [*moved, *removed]


def _departures(
    drafts: Sequence[_Draft], rules: MembershipRules, snapshot: Snapshot
) -> dict[str, list[ClusterAction]]:
    """Return the departures, by account. Who stays for now is noted in the draft."""
    leavers, reasons = {}, {}
    for draft in drafts:
        members = draft.case.members
        stale = members.stale(snapshot.users_of(draft.case.account))
        if not stale or draft.case.also_named_by:
            continue
        if rules.keeps_unmanaged and (unmanaged := stale - members.known):
            draft.notes.append(
                f"{', '.join(sorted(unmanaged)[:5])} ({len(unmanaged)} in all) stay: Waldur does not know them "
                "(preserve_unmanaged_backend_users)"
            )
            draft.unmanaged = unmanaged
            stale -= unmanaged
        if unclear := members.unclear(stale):
            who = (
                "a member without a name"
                if members.nameless
                else "a member without an entry in the directory"
            )
            draft.notes.append(
                f"{', '.join(sorted(unclear)[:5])} ({len(unclear)} in all) stay for now: {who} may be meant, and "
                "no other user has that name in Waldur"
            )
            stale -= unclear
        if not stale:
            continue
        why = rules.no_removal_reason
        if not members.complete:
            why = why or "Waldur's service and course accounts could not be read"
        elif not why and Part.DEFAULT_ACCOUNTS not in snapshot.complete:
            why = draft.put_off = "the default accounts were not read"
        if why:
            draft.notes.append(f"{len(stale)} who are not of its team stay for now: {why}")
        else:
            closed = draft.case.resource.restrict_member_access
            leavers[draft.case.account] = stale
            reasons[draft.case.account] = CLOSED if closed else LEFT_TEAM
    if not leavers:
        return {}
    grown = accounts.grown(snapshot, [action for draft in drafts for action in draft.built])
    return existing_accounts.departures(
        leavers, grown, default_account=rules.offering.default_account, reasons=reasons
    )


def desired_members(
    team: Iterable[TeamMember],
    users: Mapping[str, OfferingUser],
    accounts: ProjectAccounts | None,
    *,
    restricted: bool,
    known: frozenset[str] = frozenset(),
    departing: Set[str] = frozenset(),
) -> DesiredMembers:
    """Return the desired members of one resource. `users` by user uuid; `accounts` None where they could not be read;
    `known`: all names that a user has at the offering; `departing`: offering users who are to leave now.

    `restricted` resources (`restrict_member_access`) have no people in them, only accounts without a person.
    Users whom the provider restricted are not added; where they are in, that is left to the provider. So are those
    whose deletion Waldur wants, until they are `departing`, and those whose name is another person's in the site's
    directory: that one would get in. Whose name there is not known joins under that of Waldur, and keeps what they may
    have under another one.
    """
    names = {}
    blocked, gone = set(), set()
    for member in team:
        user = users.get(member.user_uuid)
        if user is not None and user.uuid in departing:
            gone.add(member.user_uuid)
        elif user is not None and user.may_only_stay:
            blocked.add(member.user_uuid)
        names[member.user_uuid] = fold(user.username if user is not None else member.username)
    out = blocked | gone
    wanted = set() if restricted else {name for uuid, name in names.items() if name and uuid not in out}
    active, in_transition, ended = (
        (accounts.active, accounts.in_transition, accounts.ended) if accounts else (frozenset(),) * 3
    )
    # Where no people belong in, no name is waited for.
    nameless = 0 if restricted else sum(not name for uuid, name in names.items() if uuid not in gone)
    renamed = [] if restricted else _possible_names(names.keys() - gone, users)
    kept = ({names[uuid] for uuid in blocked} | set(map(fold, in_transition.union(*renamed)))) - {""}
    return DesiredMembers(
        wanted=frozenset(wanted | set(map(fold, active))),
        kept=frozenset(kept) if kept else NO_MEMBERS,
        nameless=nameless,
        complete=accounts is not None,
        # Without closed accounts all resources share one set.
        known=known.union(map(fold, ended)) if ended else known,
        renamed=len(renamed),
    )


def _possible_names(team: Iterable[str], users: Mapping[str, OfferingUser]) -> list[frozenset[str]]:
    """Return what each member, by user uuid, may be called whose name in the site's directory is unknown."""
    found = (users.get(uuid) for uuid in team)
    return [user.possible_names for user in found if user is not None and user.directory_name is None]
