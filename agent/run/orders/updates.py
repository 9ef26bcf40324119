# SPDX-License-Identifier: MIT
"""Updates of limits, and what Waldur may do to them by itself while a pass is under way.

A server of October 2024 (5.8.4) keeps an allocation object behind each resource. Where that is not OK when an update
is approved, the server errs the order a moment later, by itself. So the object is brought to OK before the approval,
and limits are written only when Waldur still wants the update, and has begun it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from agent.core.actions import SetLimits, only
from agent.core.errors import SiteAgentError, WaldurError, WaldurLacks
from agent.core.model import OrderState, OrderType, ResourceState
from agent.core.waldur_actions import SettleAllocation
from agent.plan.orders import OrderPlan
from agent.run.site import Site
from agent.waldur import orders, pool, resources
from agent.waldur.client import WaldurClient

SETTLED = "OK"


class UpdateNotBegun(SiteAgentError):
    """Waldur has not begun an update that was approved just now: it may still err it by itself."""

    retryable = True


def to_settle(client: WaldurClient, plans: Iterable[OrderPlan]) -> dict[str, SettleAllocation | WaldurError]:
    """Return, by order uuid, what brings the allocation object to OK of each update that is to be approved and would be
    erred; or why nobody can tell.
    """
    asked = {
        plan.case.resource.uuid: plan
        for plan in plans
        if plan.case.order.type is OrderType.UPDATE
        and plan.case.order.state is OrderState.PENDING_PROVIDER
        and plan.case.resource.has_allocation
    }
    found: dict[str, SettleAllocation | WaldurError] = {}
    for uuid, state in pool.each(asked, lambda uuid: resources.allocation_state(client, uuid)).items():
        order = asked[uuid].case.order.uuid
        if isinstance(state, WaldurLacks):
            continue  # newer servers have no such object, and err no update for it
        if isinstance(state, WaldurError):
            found[order] = state
        elif state != SETTLED:
            why = f"it is {state or 'of no known state'}: Waldur would err the update"
            found[order] = SettleAllocation(order=order, resource=uuid, reason=why)
    return found


def unsettled(error: WaldurError) -> WaldurError:
    """Return why an update cannot be approved whose allocation object was not brought to OK."""
    message = (
        "not approved, for Waldur would err it: the allocation object of the resource cannot be set to OK: "
        f"{error}"
    )
    return WaldurError(
        message, method=error.method, path=error.path, status=error.status, detail=error.detail
    )


def overtaken(
    site: Site, plans: Iterable[OrderPlan], approved: Set[str]
) -> Iterable[tuple[OrderPlan, SiteAgentError]]:
    """Read the updates among these orders again, right before limits are written. Yield those that must not be carried
    out now, with the reason; `approved`: uuids of the orders that this pass has approved.
    """
    updates = {p.case.order.uuid: p for p in plans if p.case.order.type is OrderType.UPDATE}
    fresh = {
        plan.case.resource.uuid
        for uuid, plan in updates.items()
        if uuid in approved and plan.case.resource.has_allocation
    }
    # Resources first: what has begun by then cannot be erred any more without the order showing it.
    begun = resources.by_uuid(site.client, fresh)
    now = orders.again(site.client, updates)
    for uuid, plan in updates.items():
        order, resource = now[uuid], begun.get(plan.case.resource.uuid)
        if isinstance(order, WaldurError):
            yield plan, order
        elif order.state is not OrderState.EXECUTING:
            yield plan, orders.moved_on(order)
        elif isinstance(resource, WaldurError):
            yield plan, resource
        elif resource is not None and resource.state is not ResourceState.UPDATING:
            yield plan, UpdateNotBegun("approved, but Waldur has not begun it yet: looked at again soon")


def difference(plan: OrderPlan) -> str:
    """Return how the cluster and Waldur differ when limits were written for an order that Waldur has ended."""
    written = only(SetLimits, plan.actions)
    if not written:
        return ""
    limits = ", ".join(f"{name}={value}" for action in written for name, value in action.after)
    shown = ", ".join(f"{name}={value}" for name, value in sorted(plan.case.resource.limits.items()))
    return (
        f". Account {plan.account} has the limits of this order on the cluster all the same ({limits}, in its units), "
        f"and Waldur shows {shown or 'none'}: place the update again"
    )
