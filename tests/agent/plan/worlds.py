# SPDX-License-Identifier: MIT
"""Small clusters and orders for planner tests, and what a list of actions makes of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from agent.core.account_names import NameRules
from agent.core.actions import Action, ClusterAction
from agent.core.associations import Association
from agent.core.model import (
    Account,
    AccountingType,
    AllocationSpec,
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
from agent.plan.policy.gate import HeldPlan, WaitingPlan
from backends.testing.memory import TRES, MemoryBackend

EVERY_PART = frozenset(Part)
CPU = Component("cpu", "hours", AccountingType.LIMIT, "CPU", unit_factor=60)
MEM = Component("mem", "GB-hours", AccountingType.LIMIT, "Memory", unit_factor=61440)
PREPAID = Component("cpu", "hours", AccountingType.ONE, "CPU", unit_factor=60)
STATIC = Component("cpu", "hours", AccountingType.USAGE, "CPU", unit_factor=60, limit=10)
MAPPED = Component("nodes", "hours", AccountingType.LIMIT, "Nodes", targets={"cpu": 600, "gres/gpu": 5})
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
        plan_quotas=quotas,
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


def applied(snapshot: Snapshot, actions: Iterable[ClusterAction]) -> Snapshot:
    """The cluster after a backend has applied these. What SLURM would refuse is skipped."""
    backend = MemoryBackend(state=snapshot)
    backend.apply(tuple(actions))
    return backend.state


def shown(*plans: HeldPlan) -> dict[str, frozenset[str]]:
    """What a person approves who approves these plans: by id, the keys of their actions."""
    return {plan.id: frozenset(plan.lines) for plan in plans}


def waiting(plan: HeldPlan) -> WaitingPlan:
    """The plan as a later pass knows it."""
    return WaitingPlan(plan.id, plan.scope, plan.reason, frozenset(plan.lines))
