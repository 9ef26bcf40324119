# SPDX-License-Identifier: MIT
"""The policy over the orders of a pass: an order goes on as a whole, or waits as a whole with the reason.

Two things may be missing of an order that goes on: members who must not be touched, and the deletion of the
project's account when another of its allocations stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agent.config.model import Mode
from agent.core.actions import Action, AddMember, DeleteAccount
from agent.core.model import AllocationSpec, OrderType
from agent.core.names import fold
from agent.plan.orders import CREATING, OrderPlan
from agent.plan.policy.gate import Judgement
from agent.plan.policy.rules import Grounds
from agent.run import gate as policing
from agent.run.orders.planning import PlannedPass
from agent.run.site import Site

MODE = Mode.ORDER_PROCESS


def judged(site: Site, planned: PlannedPass) -> Judgement:
    """What the policy would do with these orders now. Writes nothing."""
    return policing.judged(site, MODE, planned.plan(), planned.snapshot, grounds_of(site, planned))


def policed(site: Site, planned: PlannedPass, *, whole: bool) -> Judgement:
    """The same for a pass that goes on to apply. `whole`: these are all orders of the offering."""
    return policing.policed(
        site, MODE, planned.plan(), planned.snapshot, grounds_of(site, planned), whole=whole
    )


def permitted(site: Site, planned: PlannedPass) -> Judgement:
    """What no approval allows in these plans, which were made again after `policed` let their orders go on."""
    return policing.permitted(site, planned.plan(), planned.snapshot, grounds_of(site, planned))


def grounds_of(site: Site, planned: PlannedPass) -> Grounds:
    """Accounts that Waldur names: those of the resources, and the project's above them."""
    names = site.offering.names
    named: set[str] = set()
    for plan in planned.plans:
        resource = plan.case.resource
        project = resource.project_slug or plan.case.order.project_slug
        named |= {fold(resource.backend_id), plan.account}
        named |= {fold(names.project_prefix + project)} if project else set()
        spec = planned.specs.get(plan.case.order.uuid)
        if isinstance(spec, AllocationSpec):
            named |= {ancestor.name for ancestor in spec.ancestors}
    return Grounds(
        named=frozenset(named - {""}),
        making=_accounts(planned.plans, CREATING),
        ending=_accounts(planned.plans, (OrderType.TERMINATE,)),
    )


def wait_reason(plan: OrderPlan, judgement: Judgement) -> str:
    """Why an order waits, empty when it may go on."""
    blocked = judgement.blocked
    needed = [action for action in plan.actions if action in blocked and not _is_spare(action, plan)]
    return judgement.reason(needed[0]) if needed else ""


def allowed_part(plan: OrderPlan, judgement: Judgement) -> OrderPlan:
    """The order without the actions that it can do without and must not carry out."""
    blocked = judgement.blocked
    if not any(action in blocked for action in plan.actions):
        return plan
    kept = tuple(action for action in plan.actions if action not in blocked)
    notes = tuple(
        f"{a.verb} {a.target()} is left out: {judgement.reason(a)}" for a in plan.actions if a in blocked
    )
    return replace(plan, actions=kept, notes=(*plan.notes, *notes))


def _is_spare(action: Action, plan: OrderPlan) -> bool:
    """What an order can do without."""
    if isinstance(action, AddMember):
        return True
    return isinstance(action, DeleteAccount) and action.account != plan.account


def _accounts(plans: Iterable[OrderPlan], types: tuple[OrderType, ...]) -> frozenset[str]:
    return frozenset(p.account for p in plans if p.account and p.case.order.type in types and not p.refusal)
