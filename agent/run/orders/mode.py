# SPDX-License-Identifier: MIT
"""Order processing: all orders that one poll finds are one batch; an order from an event is a batch of one.

observe (`facts`, `naming`) -> plan (`planning`) -> announce, read back, complete (`progress`).
"""

from __future__ import annotations

from agent.config.model import Mode
from agent.core.policy import PolicyRules
from agent.run import engine, gate
from agent.run.engine import Steps
from agent.run.gate import Pass
from agent.run.orders import facts as order_facts
from agent.run.orders import planning
from agent.run.orders.facts import Lock
from agent.run.orders.planning import OrderFacts, PlannedOrders
from agent.run.orders.progress import REQUESTS, OrderProgress
from agent.run.site import Site

MODE = Mode.ORDER_PROCESS


def reconcile(run: Pass, *, order_uuid: str | None = None, lock: Lock = lambda _: True) -> None:
    """Process the orders of a pass. Raises SiteAgentError where nothing could be planned."""
    engine.reconcile(run, steps(run.site, run.rules, order_uuid=order_uuid, lock=lock))


def plan(site: Site, *, order_uuid: str | None = None) -> PlannedOrders:
    """Return what a pass would do now. Changes nothing. Raises SiteAgentError."""
    return engine.plan_of(steps(site, gate.rules_of(site), order_uuid=order_uuid))


def steps(
    site: Site, rules: PolicyRules, *, order_uuid: str | None = None, lock: Lock = lambda _: True
) -> Steps[OrderFacts, PlannedOrders]:
    """Return the loop over orders."""
    progress = OrderProgress(site)
    return Steps(
        key=MODE,
        observe=lambda: order_facts.observe(site, order_uuid, lock),
        plan=planning.plan,
        refine=lambda facts, plan: order_facts.refine(site, rules, facts, plan),
        announce=progress.announce,
        portions=progress.portions,
        apply=site.backend.apply,
        read_back=progress.read_back,
        failed=progress.failed,
        tell=progress.tell,
        requests=REQUESTS,
    )
