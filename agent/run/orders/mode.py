# SPDX-License-Identifier: MIT
"""Order processing: all orders that one poll finds are one batch; an order from an event is a batch of one.

observe (`facts`, `naming`) -> plan (`planning`) -> what each order goes through (`progress`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.config.model import Mode
from agent.core.account_names import fold
from agent.core.errors import BackendError, ConfigError, PlanRefused, SiteAgentError, WaldurError
from agent.core.model import Order, OrderType, Snapshot
from agent.core.policy import PolicyRules
from agent.plan.allocations import OfferingRules
from agent.plan.orders import CREATING, OrderCase
from agent.run import engine, gate
from agent.run.engine import Steps
from agent.run.gate import Pass
from agent.run.orders import facts as waldur_facts
from agent.run.orders import naming, planning, visibility
from agent.run.orders.planning import OrderFacts, PlannedOrders, Spec
from agent.run.orders.progress import REQUESTS, Progress
from agent.run.results import OrderResult, Result, postponed
from agent.run.site import Site
from agent.waldur import orders as waldur_orders
from backends.base import Scope

log = logging.getLogger(__name__)

MODE = Mode.ORDER_PROCESS

Lock = Callable[[str], bool]


def reconcile(run: Pass, *, order_uuid: str | None = None, lock: Lock = lambda _: True) -> None:
    """The orders of a pass that is under way. Raises SiteAgentError where nothing could be planned."""
    engine.reconcile(run, steps(run.site, run.rules, order_uuid=order_uuid, lock=lock))


def plan(site: Site, *, order_uuid: str | None = None) -> PlannedOrders:
    """What a pass would do now. Changes nothing. Raises SiteAgentError."""
    return engine.plan_of(steps(site, gate.rules_of(site), order_uuid=order_uuid))


def steps(
    site: Site, rules: PolicyRules, *, order_uuid: str | None = None, lock: Lock = lambda _: True
) -> Steps[OrderFacts, PlannedOrders]:
    """The loop over orders."""
    progress = Progress(site)
    return Steps(
        key=MODE,
        observe=lambda: observe(site, order_uuid, lock),
        plan=planning.plan,
        refine=lambda facts, plan: refine(site, rules, facts, plan),
        announce=progress.announce,
        portions=progress.portions,
        apply=site.backend.apply,
        read_back=progress.read_back,
        failed=progress.failed,
        tell=progress.tell,
        requests=REQUESTS,
    )


def actionable(site: Site, order_uuid: str | None = None) -> list[Order]:
    """The offering's orders that wait for us, or the one that was named if it does."""
    if order_uuid is None:
        found = waldur_orders.actionable(site.client)
        if not found:
            visibility.make(site.client, site.state_dir)
        return found
    order = waldur_orders.get(site.client, order_uuid)
    return [order] if order.state in waldur_orders.ACTIONABLE else []


def observe(site: Site, order_uuid: str | None = None, lock: Lock = lambda _: True) -> OrderFacts:
    """What Waldur and the cluster say about the orders, and the names of accounts to be made. Raises SiteAgentError."""
    found = actionable(site, order_uuid)
    orders = [order for order in found if lock(order.uuid)]
    is_whole = order_uuid is None and len(orders) == len(found)
    if not orders:
        return OrderFacts(
            OfferingRules(site.offering.names, ()), Snapshot(site.backend.cluster), is_whole=is_whole
        )
    known = [order for order in orders if order.type is not OrderType.UNKNOWN]
    results = [_left_alone(order) for order in orders if order.type is OrderType.UNKNOWN]
    read = waldur_facts.gather(site, known)
    results += [_unread(order, read.unread[order.uuid]) for order in known if order.uuid in read.unread]
    ending = {fold(c.resource.backend_id) for c in read.cases if c.order.type is OrderType.TERMINATE} - {""}
    snapshot = site.backend.observe(Scope(jobs_of=frozenset(ending)))
    waldur_facts.require_accounts(site, read.cases, snapshot)
    cases, waiting = naming.found_again(site, read.cases, read.rules, snapshot)
    specs, unnamed = _specs(site, cases, read.rules, snapshot)
    waiting = {**waiting, **unnamed}
    results += [_unread(c.order, waiting[c.order.uuid]) for c in read.cases if c.order.uuid in waiting]
    cases = [case for case in cases if case.order.uuid not in waiting]
    return OrderFacts(read.rules, snapshot, cases, specs, results, is_whole)


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


def refine(site: Site, rules: PolicyRules, facts: OrderFacts, plan: PlannedOrders) -> OrderFacts | None:
    """The facts with what is used of each limit that an order lowers; where that cannot be read, it stays unknown."""
    accounts = gate.unknown_usage(rules, plan) - facts.usage_asked
    if not accounts:
        return None
    asked = replace(facts, usage_asked=facts.usage_asked | accounts)
    try:
        seen = site.backend.observe(Scope(parts=frozenset(), usage_of=accounts))
    except BackendError as error:
        log.warning("what accounts have used of their limits cannot be read: %s", error)
        return asked
    return replace(asked, snapshot=facts.snapshot.with_usage(seen))


def _left_alone(order: Order) -> OrderResult:
    log.warning("order %s is of a type that this agent does not know: left alone", order.uuid)
    return OrderResult(order.uuid, order.type, Result.WAITING, message="unknown order type")


def _unread(order: Order, error: SiteAgentError) -> OrderResult:
    log.warning("order %s (%s) waits: %s", order.uuid, order.type, error)
    return OrderResult(order.uuid, order.type, postponed(error), message=str(error), error=error)
