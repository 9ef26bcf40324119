# SPDX-License-Identifier: MIT
"""Planning an order pass: read Waldur, read the cluster, choose names, and hand it all to the pure planner.

A plan starts from any state, so whatever cut an earlier pass off, the next one continues where it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.core.errors import ConfigError, PlanRefused, SiteAgentError, WaldurError
from agent.core.model import AllocationSpec, Order, OrderType, Snapshot
from agent.core.names import fold
from agent.core.plans import Plan
from agent.plan import orders as planner
from agent.plan.allocations import OfferingRules
from agent.plan.orders import CREATING, OrderCase, OrderPlan
from agent.run.orders import facts as order_facts
from agent.run.orders import naming
from agent.run.results import OrderResult, Result, postponed
from agent.run.site import Site
from backends.base import Scope

log = logging.getLogger(__name__)

Spec = AllocationSpec | PlanRefused


@dataclass(frozen=True, slots=True)
class PlannedPass:
    """The plans of a pass and what they were made from; `results` holds orders that cannot be planned now."""

    rules: OfferingRules
    snapshot: Snapshot
    plans: Sequence[OrderPlan]
    specs: Mapping[str, Spec]
    results: Sequence[OrderResult]

    def plan(self) -> Plan:
        return Plan.of(action for plan in self.plans for action in plan.actions)

    def again(self, plans: Sequence[OrderPlan], snapshot: Snapshot) -> list[OrderPlan]:
        """New plans for the orders of `plans` in another state of the cluster, with the names chosen before."""
        return _plans([plan.case for plan in plans], self.rules, snapshot, self.specs)


def plan_pass(site: Site, orders: Sequence[Order]) -> PlannedPass:
    """Observe and plan. Changes nothing. Raises SiteAgentError where nothing at all can be planned."""
    known = [order for order in orders if order.type is not OrderType.UNKNOWN]
    results = [_left_alone(order) for order in orders if order.type is OrderType.UNKNOWN]
    facts = order_facts.gather(site, known)
    results += [_unread(order, facts.unread[order.uuid]) for order in known if order.uuid in facts.unread]
    ending = {fold(c.resource.backend_id) for c in facts.cases if c.order.type is OrderType.TERMINATE} - {""}
    snapshot = site.backend.observe(Scope(jobs_of=frozenset(ending)))
    cases, waiting = naming.found_again(site, facts.cases, facts.rules, snapshot)
    specs, unnamed = _specs(site, cases, facts.rules, snapshot)
    waiting = {**waiting, **unnamed}
    results += [_unread(c.order, waiting[c.order.uuid]) for c in facts.cases if c.order.uuid in waiting]
    cases = [case for case in cases if case.order.uuid not in waiting]
    return PlannedPass(facts.rules, snapshot, _plans(cases, facts.rules, snapshot, specs), specs, results)


def _specs(
    site: Site, cases: Sequence[OrderCase], rules: OfferingRules, snapshot: Snapshot
) -> tuple[dict[str, Spec], dict[str, SiteAgentError]]:
    """The allocation of each create order, oldest first, or why there can be none; and what could not be asked."""
    specs: dict[str, Spec] = {}
    unnamed: dict[str, SiteAgentError] = {}
    reserved: set[str] = set()
    for case in cases:
        if case.order.type not in CREATING:
            continue
        try:
            specs[case.order.uuid] = naming.chosen_spec(site, case, rules, snapshot, reserved)
        except PlanRefused as refused:
            specs[case.order.uuid] = refused
        except (WaldurError, ConfigError) as error:
            unnamed[case.order.uuid] = error
    return specs, unnamed


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
    needed = {tier.name for plan in plans if plan.spec for tier in plan.spec.ancestors}
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


def _left_alone(order: Order) -> OrderResult:
    log.warning("order %s is of a type that this agent does not know: left alone", order.uuid)
    return OrderResult(order.uuid, order.type, Result.WAITING, message="unknown order type")


def _unread(order: Order, error: SiteAgentError) -> OrderResult:
    log.warning("order %s (%s) waits: %s", order.uuid, order.type, error)
    return OrderResult(order.uuid, order.type, postponed(error), message=str(error), error=error)
