# SPDX-License-Identifier: MIT
"""The plan of an order pass: what was read of Waldur and of the cluster goes in, a plan for each order comes out. Pure.

A plan starts from any state, so whatever cut an earlier pass off, the next one continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from agent.core.account_names import NameRules, fold
from agent.core.actions import Action
from agent.core.errors import PlanRefused
from agent.core.model import AllocationSpec, OrderType, Snapshot
from agent.plan import orders as planner
from agent.plan.allocations import OfferingRules
from agent.plan.orders import CREATING, OrderCase, OrderPlan
from agent.plan.policy.rules import PolicyContext
from agent.run.results import OrderResult

Spec = AllocationSpec | PlanRefused


@dataclass(frozen=True, slots=True)
class OrderFacts:
    """What a pass over some orders knows. `specs`: the allocation of each order that makes one, or why there can be
    none, by order uuid. `results`: orders that cannot be planned now. `is_whole`: these are all orders of the offering.
    `usage_asked`: accounts of which somebody has asked what is used.
    """

    rules: OfferingRules
    snapshot: Snapshot
    cases: Sequence[OrderCase] = ()
    specs: Mapping[str, Spec] = field(default_factory=dict)
    results: Sequence[OrderResult] = ()
    is_whole: bool = True
    usage_asked: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PlannedOrders:
    """The plans of a pass and the facts they were made from."""

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
        """Accounts that Waldur names: those of the resources, and the project's above them."""
        names: NameRules = self.facts.rules.names
        named: set[str] = set()
        for plan in self.plans:
            resource = plan.case.resource
            project = resource.project_slug or plan.case.order.project_slug
            named |= {fold(resource.backend_id), plan.account}
            named |= {fold(names.project_prefix + project)} if project else set()
            spec = self.facts.specs.get(plan.case.order.uuid)
            if isinstance(spec, AllocationSpec):
                named |= {ancestor.name for ancestor in spec.ancestors}
        return PolicyContext(
            named=frozenset(named - {""}),
            making=self._accounts(CREATING),
            ending=self._accounts((OrderType.TERMINATE,)),
        )

    def _accounts(self, types: tuple[OrderType, ...]) -> frozenset[str]:
        plans = (p for p in self.plans if p.case.order.type in types and not p.refusal)
        return frozenset(plan.account for plan in plans if plan.account)

    def again(self, plans: Iterable[OrderPlan], snapshot: Snapshot) -> list[OrderPlan]:
        """New plans for the orders of `plans` in another state of the cluster, with the names chosen before."""
        cases = [plan.case for plan in plans]
        return _plans(cases, self.facts.rules, snapshot, self.facts.specs)

    def only(self, plans: Iterable[OrderPlan]) -> PlannedOrders:
        """The plan for these orders alone, where the others are not carried out and nobody may build on them."""
        facts = replace(self.facts, is_whole=False)
        return PlannedOrders(facts, self.again(plans, self.snapshot))


def plan(facts: OrderFacts) -> PlannedOrders:
    """One plan for each order."""
    return PlannedOrders(facts, _plans(facts.cases, facts.rules, facts.snapshot, facts.specs))


def _plans(
    cases: Sequence[OrderCase], rules: OfferingRules, snapshot: Snapshot, specs: Mapping[str, Spec]
) -> list[OrderPlan]:
    """One plan per case. Terminations are planned together, beside what the other orders build: the last one takes
    the project's account along, and a user's default may move to an account that is being made.
    """
    endings = [case for case in cases if case.order.type is OrderType.TERMINATE]
    plans = [
        _plan(case, rules, snapshot, specs.get(case.order.uuid)) for case in cases if case not in endings
    ]
    built = [action for plan in plans for action in plan.actions]
    needed = {ancestor.name for plan in plans if plan.spec for ancestor in plan.spec.ancestors}
    plans += planner.terminations(endings, rules, snapshot, beside=built, needed=needed)
    by_order = {plan.case.order.uuid: plan for plan in plans}
    return [by_order[case.order.uuid] for case in cases]


def _plan(case: OrderCase, rules: OfferingRules, snapshot: Snapshot, spec: Spec | None) -> OrderPlan:
    if isinstance(spec, PlanRefused):
        return planner.refusal(case, spec)
    if spec is not None:
        return planner.creation(case, rules, spec, snapshot)
    try:
        return planner.update(case, rules, snapshot)
    except PlanRefused as refused:
        return planner.refusal(case, refused)
