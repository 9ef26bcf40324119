# SPDX-License-Identifier: MIT
"""One mode of a pass by itself, as a pass that does not apply has it."""

from __future__ import annotations

from typing import TypeVar

from agent.config.model import Mode
from agent.core.scope import EVERYTHING, PassScope
from agent.run import engine
from agent.run.gate import Pass, Planned
from agent.run.membership.mode import Members
from agent.run.membership.planning import PlannedSync
from agent.run.orders.facts import PlannedOrders
from agent.run.orders.mode import Orders
from agent.run.site import Site

Plan = TypeVar("Plan", bound=Planned)


def looked(site: Site, mode: Mode, kind: type[engine.Mode[object, Plan]], scope: PassScope) -> Pass:
    """Return a pass of this mode alone that has decided. Raises SiteAgentError."""
    with engine.passing(site, mode, scope=scope, applies=False) as run:
        engine.walk(run, [kind])
    if run.report.error is not None:
        raise run.report.error
    return run


def planned_orders(site: Site, *, order: str = "") -> PlannedOrders:
    """Return what a pass over orders would do with them now. Raises SiteAgentError."""
    run = looked(site, Mode.ORDER_PROCESS, Orders, PassScope(order=order))
    plan: PlannedOrders = run.works[0].plan
    return plan


def planned_members(site: Site, scope: PassScope = EVERYTHING) -> PlannedSync:
    """Return what a pass over members would do with them now, under the names that they have. Raises SiteAgentError."""
    plan: PlannedSync = looked(site, Mode.MEMBERSHIP_SYNC, Members, scope).works[0].plan
    return plan
