# SPDX-License-Identifier: MIT
"""Small clusters and orders for planner tests, and what a list of actions makes of a cluster.

`applied` keeps SLURM's rules: what it would refuse changes nothing. It is pure, like the planner it checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from agent.core.account_names import NameRules
from agent.core.actions import (
    Action,
    AddMember,
    AllowSubmission,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    CreateQos,
    DeleteAccount,
    DeleteQos,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
)
from agent.core.model import (
    Account,
    AccountingType,
    AllocationSpec,
    Association,
    Component,
    Order,
    OrderState,
    OrderType,
    Part,
    Resource,
    ResourceState,
    Snapshot,
)
from agent.core.plans import Plan
from agent.plan.allocations import OfferingRules
from agent.plan.orders import OrderCase, OrderPlan

EVERY_PART = frozenset(Part)
TRES = frozenset({"cpu", "mem", "gres/gpu"})
CPU = Component("cpu", "hours", AccountingType.LIMIT, "CPU", unit_factor=60)
MEM = Component("mem", "GB-hours", AccountingType.LIMIT, "Memory", unit_factor=61440)
RULES = OfferingRules(
    names=NameRules(customer_prefix="c_", project_prefix="p_", allocation_prefix="a_"), components=(CPU, MEM)
)
TREE = {"root": None, "c_cust": "root", "p_proj": "c_cust", "a_one": "p_proj"}


def cluster(
    parents: Mapping[str, str | None],
    members: Iterable[tuple[str, str]] = (),
    *,
    defaults: Mapping[str, str] | None = None,
    limits: Mapping[str, Mapping[str, int]] | None = None,
    jobs: Mapping[str, int] | None = None,
    blocked: Iterable[str] = (),
    qos: Mapping[str, Iterable[str]] | None = None,
    lacking: Iterable[Part] = (),
) -> Snapshot:
    """`members`: (account, user). `jobs`: the accounts that were asked about. `qos`: of accounts; all have "normal"."""
    limits, qos = limits or {}, qos or {}
    accounts = {
        name: Account(
            name,
            parent,
            limits=dict(limits.get(name, {})),
            qos=frozenset({"normal", *qos.get(name, ())}),
            default_qos=next(iter(qos.get(name, ())), ""),
            submit_limit=0 if name in blocked else None,
        )
        for name, parent in parents.items()
    }
    return Snapshot(
        "test",
        accounts=accounts,
        associations=frozenset(Association(account, user) for account, user in members),
        default_accounts=dict(defaults or {}),
        tres=TRES,
        active_jobs=dict(jobs if jobs is not None else dict.fromkeys(parents, 0)),
        qos=frozenset({"normal", *(name for names in qos.values() for name in names)}),
        complete=EVERY_PART - set(lacking),
    )


def without(snapshot: Snapshot, *parts: Part) -> Snapshot:
    """The same cluster, read without these parts: a backend leaves such fields empty."""
    empty: dict[Part, dict[str, Any]] = {
        Part.ACCOUNTS: {"accounts": {}},
        Part.ASSOCIATIONS: {"associations": frozenset()},
        Part.DEFAULT_ACCOUNTS: {"default_accounts": {}},
        Part.TRES: {"tres": frozenset()},
        Part.JOBS: {"active_jobs": {}},
        Part.QOS: {"qos": frozenset()},
        Part.USAGE: {"used": {}},
        Part.USER_LIMITS: {"user_limits": {}},
    }
    for part in parts:
        snapshot = replace(snapshot, **empty[part])
    return replace(snapshot, complete=snapshot.complete - set(parts))


def case(
    kind: OrderType = OrderType.CREATE,
    *,
    number: int = 1,
    account: str = "",
    members: Iterable[str] = (),
    state: OrderState = OrderState.EXECUTING,
    order: Mapping[str, Any] | None = None,
    resource: Mapping[str, Any] | None = None,
    quotas: Mapping[str, int] | None = None,
) -> OrderCase:
    """An order about the allocation `account` of project "proj" (slug) of customer "cust"."""
    facts: dict[str, Any] = {
        "name": f"Allocation {number}",
        "slug": f"slug{number}",
        "state": ResourceState.OK,
        "backend_id": account,
        "project_slug": "proj",
        "project_name": "The project",
        "customer_slug": "cust",
        "customer_name": "The customer",
        "created": datetime(2026, 1, 10, tzinfo=UTC),
        **(resource or {}),
    }
    return OrderCase(
        Order(f"order{number}", kind, state, f"resource{number}", **(order or {})),
        Resource(f"resource{number}", **facts),
        tuple(members),
        quotas,
    )


def ending(*accounts: str, project: str = "proj") -> list[OrderCase]:
    """Terminate orders for these accounts."""
    return [
        case(OrderType.TERMINATE, number=number, account=account, resource={"project_slug": project})
        for number, account in enumerate(accounts)
    ]


def placed(spec: AllocationSpec, top: str = "root") -> AllocationSpec:
    """What a backend's `canonical` does with the topmost account."""
    first, *others = spec.ancestors
    return replace(spec, ancestors=(replace(first, parent=top), *others))


def end_of(year: int, month: int, day: int) -> datetime:
    return datetime.combine(date(year, month, day), datetime.min.time(), tzinfo=UTC)


def cluster_actions(plans: Iterable[OrderPlan]) -> list[ClusterAction]:
    return list(Plan.of(action for plan in plans for action in plan.actions).cluster_actions())


def rendered(actions: Iterable[Action]) -> list[str]:
    """The lines, without their reasons."""
    return [replace(action, reason="").render() for action in actions]


PHASES = (
    CreateAccount, CreateQos, SetQos, SetLimits, AddMember, MoveDefaultAccount, AllowSubmission, BlockSubmission,
    CancelJobs, RemoveMember, DeleteAccount, DeleteQos,
)  # fmt: skip


def applied(snapshot: Snapshot, actions: Iterable[ClusterAction]) -> Snapshot:
    """The cluster after a backend has applied these: builders first, removals last, parents before children and
    after them. What SLURM would refuse is left out.
    """
    waiting = sorted(actions, key=lambda action: PHASES.index(type(action)))
    while waiting:
        left = []
        before = snapshot
        for action in waiting:
            after = _after(snapshot, action)
            if after is None:
                left.append(action)
            else:
                snapshot = after
        if snapshot == before:
            return snapshot
        waiting = left
    return snapshot


def _after(snapshot: Snapshot, action: ClusterAction) -> Snapshot | None:
    """The cluster after one action; None where SLURM refuses it."""
    accounts = dict(snapshot.accounts)
    match action:
        case CreateAccount():
            if action.account in accounts:
                return snapshot
            if action.parent not in accounts:
                return None
            above = accounts[action.parent]
            accounts[action.account] = Account(
                action.account, action.parent, qos=above.qos, default_qos=above.default_qos
            )
            return replace(snapshot, accounts=accounts)
        case CreateQos():
            return replace(snapshot, qos=snapshot.qos | {action.account})
        case DeleteQos():
            users = [a for a in accounts.values() if action.account == a.default_qos]
            return None if users else replace(snapshot, qos=snapshot.qos - {action.account})
    return _after_in_account(snapshot, accounts, action)


def _after_in_account(
    snapshot: Snapshot, accounts: dict[str, Account], action: ClusterAction
) -> Snapshot | None:
    standing = accounts.get(action.account)
    if standing is None:
        return None
    match action:
        case SetQos():
            if not {*action.after, action.default} <= snapshot.qos:
                return None
            standing = replace(standing, qos=frozenset(action.after), default_qos=action.default)
        case SetLimits():
            standing = replace(standing, limits={**standing.limits, **dict(action.after)})
        case BlockSubmission():
            standing = replace(standing, submit_limit=0)
        case AllowSubmission():
            standing = replace(standing, submit_limit=None)
        case CancelJobs():
            return replace(snapshot, active_jobs={**snapshot.active_jobs, action.account: 0})
        case DeleteAccount():
            if snapshot.children_of(action.account) or snapshot.users_of(action.account):
                return None
            del accounts[action.account]
            return replace(snapshot, accounts=accounts)
        case _:
            return _after_in_users(snapshot, action)
    return replace(snapshot, accounts={**accounts, action.account: standing})


def _after_in_users(snapshot: Snapshot, action: ClusterAction) -> Snapshot | None:
    defaults = dict(snapshot.default_accounts)
    match action:
        case AddMember():
            added = {Association(action.account, action.user, name) for name in action.partitions or ("",)}
            defaults.setdefault(action.user, action.account)
            return replace(snapshot, associations=snapshot.associations | added, default_accounts=defaults)
        case MoveDefaultAccount():
            if action.account not in snapshot.accounts_of(action.user):
                return None
            return replace(snapshot, default_accounts={**defaults, action.user: action.account})
        case RemoveMember():
            if snapshot.active_jobs.get(action.account):
                return None
            if defaults.get(action.user) == action.account:
                del defaults[action.user]
            left = {a for a in snapshot.associations if (a.account, a.user) != (action.account, action.user)}
            return replace(snapshot, associations=frozenset(left), default_accounts=defaults)
    raise AssertionError(f"no model of {action.verb}")
