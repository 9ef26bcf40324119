# SPDX-License-Identifier: MIT
"""What an order means: the allocation it asks for, and the actions that fulfil it.

Each plan is a way from any state to the end state, so that a pass which was cut off anywhere is continued by
the next one. An order that can never be fulfilled raises PlanRefused; everything else waits or is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from agent.core.account_names import NameRules, fold
from agent.core.actions import Action, DeleteAccount, ObjectKind, objects_ended
from agent.core.errors import PlanRefused
from agent.core.model import (
    AllocationSpec,
    Component,
    OfferingUser,
    Order,
    OrderState,
    OrderType,
    Part,
    Resource,
    Snapshot,
    TeamMember,
)
from agent.core.units import BackendLimits, backend_limits, waldur_limits
from agent.core.waldur_actions import (
    ApproveOrder,
    ClaimAccount,
    CompleteOrder,
    FailOrder,
    RejectOrder,
    ReportLimits,
)
from agent.plan import accounts, allocations, shared_limits
from agent.plan.allocations import OfferingRules

CREATING = (OrderType.CREATE, OrderType.RESTORE)
PROJECT_SLUG_POLICY = "project_slug"


@dataclass(frozen=True, slots=True)
class OrderCase:
    """An order with all that Waldur knows about it."""

    order: Order
    resource: Resource
    # Usernames.
    members: tuple[str, ...] = ()
    # How many of its team have no username yet.
    nameless: int = 0
    # Of the order's plan.
    plan_quotas: Mapping[str, int] | None = None
    # Who accepted it, and why, where a person was asked.
    decided: str = ""
    # Whose each username is, by uuid.
    people: Mapping[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        return f"{self.order.type} order {self.order.uuid}, {self.order.resource_name}".rstrip(", ")


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """The actions of one order."""

    case: OrderCase
    account: str = ""
    actions: tuple[Action, ...] = ()
    # What shall stand afterwards, None where nothing shall.
    spec: AllocationSpec | None = None
    notes: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Team:
    """The people of a project: usernames, how many have none at the offering yet, and whose each username is (by uuid).

    Waldur makes users of an offering when a resource of their project is OK: with the first order no user has a name.
    """

    members: tuple[str, ...] = ()
    nameless: int = 0
    people: Mapping[str, str] = field(default_factory=dict)


def team_of(
    team: Iterable[TeamMember], users: Iterable[OfferingUser], project_accounts: Iterable[str]
) -> Team:
    """Return the team members who are ready users of the offering, and accounts without a person."""
    team, users = tuple(team), tuple(users)
    ready = {user.user_uuid: user.username for user in users if user.may_use}
    named = {user.user_uuid for user in users if user.username}
    people = {ready[member.user_uuid] for member in team if member.user_uuid in ready}
    return Team(
        tuple(sorted(people | set(project_accounts))),
        nameless=sum(member.user_uuid not in named for member in team),
        people={ready[member.user_uuid]: member.user_uuid for member in team if member.user_uuid in ready},
    )


def account_names(case: OrderCase, rules: NameRules) -> list[str]:
    """Return names to try for a new allocation, best first. Raises PlanRefused where there is no slug to use."""
    by_project = _is_named_by_project(case)
    slug = _project_slug(case) if by_project else case.resource.slug
    if not slug:
        raise PlanRefused(f"resource {case.resource.name!r} has no slug in Waldur to make an account name of")
    counted = by_project or rules.check_uniqueness
    names = allocations.allocation_names(
        rules.allocation_prefix + slug,
        max_length=rules.max_length,
        counted=counted,
        attempts=rules.max_attempts,
    )
    return list(names)


def is_named_after_itself(case: OrderCase, rules: NameRules) -> bool:
    """Return whether the resource's own slug, whole and without a counter, is the only name its account can have."""
    return not _is_named_by_project(case) and len(account_names(case, replace(rules, max_attempts=2))) == 1


def allocation(case: OrderCase, rules: OfferingRules, account: str, snapshot: Snapshot) -> AllocationSpec:
    """Return the allocation that a create or restore order asks for."""
    wanted = _wanted_limits(case, rules, with_static=True)
    spec = allocations.allocation(
        case.resource,
        rules,
        account,
        snapshot,
        project_slug=case.order.project_slug,
        members=case.members,
    )
    notes = wanted.skipped
    if case.nameless:
        notes += (f"{case.nameless} of its team have no username here yet: a membership pass adds them",)
    return replace(spec, limits=wanted.values, notes=notes)


def creation(case: OrderCase, rules: OfferingRules, spec: AllocationSpec, snapshot: Snapshot) -> OrderPlan:
    """Return the plan of a create or restore order: claim the name, build what is missing, show the limits, done.

    Raises PlanRefused where the order names what the offering does not offer.
    """
    snapshot.require(Part.ACCOUNTS, Part.ASSOCIATIONS)
    account = spec.account.name
    if why := "; ".join(spec.not_offered) or _no_allocation(account, rules, snapshot):
        raise PlanRefused(why)
    claim = ClaimAccount(
        order=case.order.uuid,
        resource=case.resource.uuid,
        account=account,
        reason="so that a crash finds it again",
    )
    in_waldur = waldur_limits(case.resource.limits or case.order.limits, rules.components)
    report = ReportLimits(
        resource=case.resource.uuid, limits=tuple(sorted(in_waldur.items())), reason=case.reason
    )
    actions = (
        *_approval(case),
        *((claim,) if case.resource.backend_id != account else ()),
        *accounts.building(spec, snapshot, case.reason),
        *((report,) if rules.can_show_limits and in_waldur != dict(case.resource.limits) else ()),
        CompleteOrder(order=case.order.uuid, reason=f"account {account} stands"),
    )
    return OrderPlan(case, account, actions, spec, spec.notes)


def update(case: OrderCase, rules: OfferingRules, snapshot: Snapshot) -> OrderPlan:
    """Return the plan of an update: new limits, or those of the new plan, or the same for more prepaid months."""
    snapshot.require(Part.ACCOUNTS, Part.TRES)
    account = fold(case.resource.backend_id)
    if not account:
        raise PlanRefused(
            f"resource {case.resource.name!r} has no backend id in Waldur: its account is not known"
        )
    if account not in snapshot.accounts:
        raise PlanRefused(f"account {account} is not on the cluster {snapshot.cluster}")
    if why := _no_allocation(account, rules, snapshot):
        raise PlanRefused(why)
    with_static = any(component.targets for component in rules.components)
    wanted = _wanted_limits(case, rules, with_static=with_static)
    tracked = {tres: value for tres, value in wanted.values.items() if tres in snapshot.tres}
    unknown = sorted(set(wanted.values) - set(tracked))
    notes = [*wanted.skipped, *(f"{tres}: this cluster keeps no limit of it" for tres in unknown)]
    if not wanted.values:
        notes.append("the order carries no limits and its plan no quotas: nothing to change")
    actions = (
        *_approval(case),
        *accounts.limits(account, tracked, snapshot, case.reason),
        CompleteOrder(order=case.order.uuid, reason=f"limits of {account} are set"),
    )
    return OrderPlan(case, account, actions, notes=tuple(notes))


def terminations(
    cases: Sequence[OrderCase],
    rules: OfferingRules,
    snapshot: Snapshot,
    *,
    other_actions: Iterable[Action] = (),
    needed: Set[str] = frozenset(),
) -> list[OrderPlan]:
    """Terminate orders, planned together: a project account goes with the last of its allocations.

    `other_actions`: what the other orders of the pass do. A project in which one of them makes an account stays, and an
    account that one of them puts a user in can become the user's default. `needed`: accounts above theirs.
    """
    if cases:
        snapshot.require(Part.ACCOUNTS, Part.ASSOCIATIONS)
        snapshot = accounts.grown(snapshot, other_actions)
    ending = {fold(case.resource.backend_id) for case in cases} & set(snapshot.accounts)
    leaving = {account for account in ending if not _no_allocation(account, rules, snapshot)}
    plans = [_termination(case, rules, snapshot, leaving) for case in cases]
    planned = (action for plan in plans for action in plan.actions)
    going = {thing.account for thing in objects_ended(planned, ObjectKind.ACCOUNT)}
    return [_with_project(plan, going, needed, rules, snapshot) for plan in plans]


def refusal(case: OrderCase, error: PlanRefused) -> OrderPlan:
    """Return the plan of an order that cannot be fulfilled: approved, so that Waldur lets it be failed, then failed
    with the reason.
    """
    fail = FailOrder(order=case.order.uuid, message=str(error), reason="the order itself is at fault")
    account = fold(case.resource.backend_id)
    return OrderPlan(case, account, actions=(*_approval(case), fail), refusal=str(error))


def rejection(case: OrderCase, message: str) -> OrderPlan:
    """Return the plan of an order that the site does not want: rejected, before anything is made of it."""
    reject = RejectOrder(order=case.order.uuid, message=message, reason="the site's hook rejects it")
    refused = f"rejected by the site's hook{f': {message}' if message else ''}"
    return OrderPlan(case, fold(case.resource.backend_id), actions=(reject,), refusal=refused)


def _termination(case: OrderCase, rules: OfferingRules, snapshot: Snapshot, leaving: Set[str]) -> OrderPlan:
    account = fold(case.resource.backend_id)
    notes: tuple[str, ...] = ()
    steps: list[Action] = []
    done = [CompleteOrder(order=case.order.uuid, reason="nothing is left of it")]
    if account not in snapshot.accounts:
        what = f"account {account} is not on the cluster" if account else "the resource names no account"
        notes = (f"{what}: nothing to remove",)
        steps += accounts.left_qos(account, snapshot, case.reason) if account else []
    elif why := _no_allocation(account, rules, snapshot):
        return refusal(case, PlanRefused(why))
    else:
        change = accounts.emptying if rules.soft_delete else accounts.removal
        steps += change(
            account, snapshot, default_account=rules.default_account, reason=case.reason, leaving=leaving
        )
        if rules.soft_delete:
            snapshot.require(Part.TRES)
            named = {tres for c in rules.components for tres in (c.targets or (c.name,))}
            nothing = {tres: 0 for tres in sorted(named) if tres in snapshot.tres}
            steps += accounts.limits(account, nothing, snapshot, f"{case.reason}, soft delete")
        if why := accounts.obstacle(account, snapshot):
            notes, done = (f"{why}: no member is removed now",), []
    return OrderPlan(case, account, (*_approval(case), *steps, *done), notes=notes)


def _no_allocation(account: str, rules: OfferingRules, snapshot: Snapshot) -> str:
    """Return why no order may make, change or remove this account, empty when one may. The site's default account is
    refused before it stands as well: an order that had begun to make it would be refused half-way.
    """
    standing = snapshot.accounts.get(account)
    if account == rules.default_account or (standing is not None and not standing.parent):
        return f"account {account} is no allocation: it is what the site's own accounts and users stand on"
    if standing is not None and (children := sorted(snapshot.children_of(account))):
        return (
            f"account {account} has accounts below it ({', '.join(children[:5])}), so it is no allocation: their users "
            "would lose access or limits with it. Correct the backend id of the resource, or move or remove these first"
        )
    return ""


def _with_project(
    plan: OrderPlan, going: Set[str], needed: Set[str], rules: OfferingRules, snapshot: Snapshot
) -> OrderPlan:
    """Return the plan with the deletion of the project's account where nothing is left in and below it.

    Whether the allocation stands below it (one that a pass which was cut off has removed, or a person has moved, does
    not), the name alone can show it as well, where it has a prefix.
    """
    prefix, slug = rules.names.project_prefix, _project_slug(plan.case)
    project = fold(
        allocations.project_account(
            plan.case.resource, rules, plan.account, snapshot, project_slug=plan.case.order.project_slug
        )
    )
    allocation = snapshot.accounts.get(plan.account)
    ends = plan.account in going if allocation else bool(plan.account) and not rules.soft_delete
    is_ours = bool(prefix and slug) or (allocation is not None and allocation.parent == project)
    standing = snapshot.accounts.get(project) if ends and is_ours else None
    if (
        standing is None
        or not standing.parent
        or project in {rules.default_account, *needed}
        or snapshot.users_of(project)
        or snapshot.children_of(project) - going
    ):
        return plan
    reason = f"{plan.case.reason}, the last allocation of the project"
    deletion = DeleteAccount(account=project, parent=standing.parent, reason=reason)
    return replace(plan, actions=(*plan.actions[:-1], deletion, plan.actions[-1]))


def _approval(case: OrderCase) -> tuple[Action, ...]:
    if case.order.state is not OrderState.PENDING_PROVIDER:
        return ()
    reason = f"{case.reason}, {case.decided}" if case.decided else case.reason
    return (ApproveOrder(order=case.order.uuid, reason=reason),)


def _is_named_by_project(case: OrderCase) -> bool:
    return case.resource.plugin_options.get("account_name_generation_policy") == PROJECT_SLUG_POLICY


def _project_slug(case: OrderCase) -> str:
    return case.resource.project_slug or case.order.project_slug


def _wanted_limits(case: OrderCase, rules: OfferingRules, *, with_static: bool) -> BackendLimits:
    """Return the order's limits; a plan switch carries none, the new plan's quotas count then."""
    resource, components = case.resource, rules.components
    asked = dict(case.order.limits) or dict(case.plan_quotas or {})
    if not asked and case.order.type in CREATING:
        asked = dict(case.resource.limits)
    spending = shared_limits.spending_of(resource, components, from_waldur=rules.limits_from_waldur)
    found = backend_limits(
        asked, components, months=_months(case, components), with_static=with_static, caps=spending.caps
    )
    return replace(found, skipped=(*found.skipped, *spending.notes))


def _months(case: OrderCase, components: Sequence[Component]) -> int | None:
    """Return prepaid months from the resource's creation to its end, or to the end that a renewal order brings."""
    renewed, until = case.order.attributes.get("new_end_date"), None
    if isinstance(renewed, str):
        with suppress(ValueError):
            until = datetime.fromisoformat(renewed)
    return shared_limits.months_of(case.resource, components, until)
