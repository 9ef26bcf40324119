# SPDX-License-Identifier: MIT
"""Plan the orders of a pass: facts of Waldur and the cluster in, one plan for each order out. Pure.

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
from agent.plan import allocations
from agent.plan import orders as planner
from agent.plan.allocations import OfferingRules
from agent.plan.orders import CREATING, OrderCase, OrderPlan
from agent.plan.policy.rules import PolicyContext
from agent.run.results import OrderResult

Spec = AllocationSpec | PlanRefused


@dataclass(frozen=True, slots=True)
class OrderFacts:
    """What was read for the orders of a pass. `specs`: the allocation of each order that makes one, or why there can be
    none, by order uuid. `results`: orders that cannot be planned now. `is_whole`: these are all orders of the offering.
    `usage_asked`: accounts whose used amounts were asked for. `rejected`: why the site rejects an order, by its uuid.
    """

    rules: OfferingRules
    snapshot: Snapshot
    cases: Sequence[OrderCase] = ()
    specs: Mapping[str, Spec] = field(default_factory=dict)
    results: Sequence[OrderResult] = ()
    is_whole: bool = True
    usage_asked: frozenset[str] = frozenset()
    rejected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedOrders:
    """The plans of a pass and the facts that they were made from."""

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
        """Return the accounts that Waldur names: those of the resources, and the project's above them."""
        names: NameRules = self.facts.rules.names
        named: set[str] = set()
        derived: dict[str, bool] = {}
        for plan in self.plans:
            resource = plan.case.resource
            derived |= self._derived(plan)
            named |= {fold(resource.backend_id), plan.account}
            # Servers of 2024 tell no slug of a resource's project: its account is named by uuid then.
            tails = {resource.project_slug or plan.case.order.project_slug, resource.project_uuid} - {""}
            named |= {fold(names.project_prefix + tail) for tail in tails}
            spec = self.facts.specs.get(plan.case.order.uuid)
            if isinstance(spec, AllocationSpec):
                named |= {ancestor.name for ancestor in spec.ancestors}
        return PolicyContext(
            named=frozenset(named - {""}),
            derived=derived,
            making=self._accounts(CREATING),
            ending=self._accounts((OrderType.TERMINATE,)),
        )

    def _derived(self, plan: OrderPlan) -> dict[str, bool]:
        resource, rules, snapshot = plan.case.resource, self.facts.rules, self.snapshot
        spec = self.facts.specs.get(plan.case.order.uuid)
        if not plan.account or isinstance(spec, PlanRefused):
            return {}
        if spec is None:
            slug = plan.case.order.project_slug
            try:
                spec = allocations.allocation(resource, rules, plan.account, snapshot, project_slug=slug)
            except PlanRefused:
                return {}
        return allocations.derived(resource, rules, spec, snapshot)

    def _accounts(self, types: tuple[OrderType, ...]) -> frozenset[str]:
        plans = (p for p in self.plans if p.case.order.type in types and not p.refusal)
        return frozenset(plan.account for plan in plans if plan.account)

    def again(self, plans: Iterable[OrderPlan], snapshot: Snapshot) -> list[OrderPlan]:
        """Plan the orders of `plans` again for another state of the cluster, with the names chosen before."""
        cases = [plan.case for plan in plans]
        return _plans(cases, self.facts, snapshot)

    def only(self, plans: Iterable[OrderPlan]) -> PlannedOrders:
        """Return the plan for these orders alone: the others are not carried out, and nothing may depend on them."""
        facts = replace(self.facts, is_whole=False)
        return PlannedOrders(facts, self.again(plans, self.snapshot))


def plan(facts: OrderFacts) -> PlannedOrders:
    """Return one plan for each order."""
    return PlannedOrders(facts, _plans(facts.cases, facts, facts.snapshot))


def _plans(cases: Sequence[OrderCase], facts: OrderFacts, snapshot: Snapshot) -> list[OrderPlan]:
    """Return one plan per case. Terminations are planned together, after what the other orders build: the last one
    deletes the project's account too, and a user's default account may become one that is being made.
    """
    rules, rejected = facts.rules, facts.rejected
    wanted = [case for case in cases if case.order.uuid not in rejected]
    endings = [case for case in wanted if case.order.type is OrderType.TERMINATE]
    plans = [
        planner.rejection(case, rejected[case.order.uuid]) for case in cases if case.order.uuid in rejected
    ]
    for case in wanted:
        if case in endings:
            continue
        spec = facts.specs.get(case.order.uuid)
        try:
            if isinstance(spec, PlanRefused):
                plans.append(planner.refusal(case, spec))
            elif spec is not None:
                plans.append(planner.creation(case, rules, spec, snapshot))
            else:
                plans.append(planner.update(case, rules, snapshot))
        except PlanRefused as refused:
            plans.append(planner.refusal(case, refused))
    built = [action for plan in plans for action in plan.actions]
    needed = {ancestor.name for plan in plans if plan.spec for ancestor in plan.spec.ancestors}
    plans += planner.terminations(endings, rules, snapshot, beside=built, needed=needed)
    by_order = {plan.case.order.uuid: plan for plan in plans}
    return [by_order[case.order.uuid] for case in cases]
