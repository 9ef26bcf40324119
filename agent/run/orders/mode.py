# SPDX-License-Identifier: MIT
"""Order processing: all orders that one poll finds are one batch; an order from an event is a batch of one.

observe and plan (`order_plan`) -> apply (`order_apply`). Called by the tasks and by `manage.py run` and `plan`.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.config.model import Mode
from agent.core.errors import SiteAgentError
from agent.core.model import Order
from agent.run import gate as policing
from agent.run.orders import apply as order_apply
from agent.run.orders import visibility as acquaintance
from agent.run.orders.planning import PlannedPass, plan_pass
from agent.run.people import provisioning as followups
from agent.run.results import PassReport
from agent.run.site import Site, effort_of
from agent.state import passes
from agent.waldur import orders as waldur_orders

Lock = Callable[[str], bool]


def actionable(site: Site, order_uuid: str | None = None) -> list[Order]:
    """The offering's orders that wait for us, or the one that was named if it does."""
    if order_uuid is None:
        found = waldur_orders.actionable(site.client)
        if not found:
            acquaintance.make(site.client, site.state_dir)
        return found
    order = waldur_orders.get(site.client, order_uuid)
    return [order] if order.state in waldur_orders.ACTIONABLE else []


def plan(site: Site, *, order_uuid: str | None = None) -> PlannedPass:
    """What a pass would do now. Changes nothing. Raises SiteAgentError."""
    return plan_pass(site, actionable(site, order_uuid))


def apply_planned(site: Site, planned: PlannedPass) -> PassReport:
    """Carry out a plan over all orders that `plan` has just made."""
    report = PassReport(Mode.ORDER_PROCESS, site.offering.uuid, site.offering.name)
    with effort_of(site) as report.effort:
        try:
            report.orders += planned.results
            order_apply.apply(site, planned, report)
        except SiteAgentError as error:
            report.error = error
    passes.record(site.state_dir, report)
    return report


def run_pass(site: Site, *, order_uuid: str | None = None, lock: Lock = lambda _: True) -> PassReport:
    """One pass over the offering's orders, or over one order. Orders whose lock is taken are left to its holder."""
    report = PassReport(Mode.ORDER_PROCESS, site.offering.uuid, site.offering.name)
    with effort_of(site) as report.effort:
        try:
            found = actionable(site, order_uuid)
            orders = [order for order in found if lock(order.uuid)]
            whole = order_uuid is None and len(orders) == len(found)
            if orders:
                planned = plan_pass(site, orders)
                report.orders += planned.results
                order_apply.apply(site, planned, report, whole=whole)
                followups.after_orders(site, report)
            elif whole:
                policing.nothing_planned(site, Mode.ORDER_PROCESS)
        except SiteAgentError as error:
            report.error = error
    passes.record(site.state_dir, report, subject=order_uuid or "")
    return report
