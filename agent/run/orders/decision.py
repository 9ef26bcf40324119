# SPDX-License-Identifier: MIT
"""The policy's decision, order by order: an order goes on as a whole, or waits as a whole with the reason.

Two things may be missing of an order that goes on: members who must not be touched, and the deletion of the
project's account when another of its allocations stays.
"""

from __future__ import annotations

from dataclasses import replace

from agent.core.actions import Action, AddMember, DeleteAccount
from agent.plan.orders import OrderPlan
from agent.plan.policy.gate import Decision


def wait_reason(plan: OrderPlan, decision: Decision) -> str:
    """Why an order waits, empty when it may go on."""
    blocked = decision.blocked
    needed = [action for action in plan.actions if action in blocked and not _is_spare(action, plan)]
    return decision.reason(needed[0]) if needed else ""


def allowed_part(plan: OrderPlan, decision: Decision) -> OrderPlan:
    """The order without the actions that it can do without and must not carry out."""
    blocked = decision.blocked
    left_out = [action for action in plan.actions if action in blocked]
    if not left_out:
        return plan
    kept = tuple(action for action in plan.actions if action not in blocked)
    notes = tuple(f"{a.line()} is left out: {decision.reason(a)}" for a in left_out)
    return replace(plan, actions=kept, notes=(*plan.notes, *notes))


def _is_spare(action: Action, plan: OrderPlan) -> bool:
    """What an order can do without."""
    if isinstance(action, AddMember):
        return True
    return isinstance(action, DeleteAccount) and action.account != plan.account
