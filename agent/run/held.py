# SPDX-License-Identifier: MIT
"""Held plans and approvals, between what the policy says (`agent.plan`) and what is remembered (`agent.state`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.plan.policy.gate import Approvals, HeldPlan, Refused, WaitingPlan, plan_id
from agent.state.plans import HeldRow, Shelf


def row_of(plan: HeldPlan, cluster: str) -> HeldRow:
    """Return a held plan as it is written down."""
    return HeldRow(
        id=plan.id,
        scope=plan.scope,
        reason=plan.reason,
        cluster=cluster,
        lines=tuple(action.render() for action in plan.actions),
        keys=plan.keys,
        figures=plan.figures,
        sticky=plan.sticky,
    )


def approvals_of(shelf: Shelf, *, whole: bool) -> Approvals:
    """Return what people have approved, for the policy. A pass over one order or resource also hears all that waits,
    one over everything what waits until a person decides. Raises StateError.
    """
    found = shelf.approvals()
    waits = [each for each in shelf.waiting() if each.sticky or not whole]
    return Approvals(
        ids=frozenset(each.plan for each in found),
        begun=frozenset(key for each in found for key in each.begun),
        standing=tuple(
            WaitingPlan(each.id, each.scope, each.reason, each.keys, each.sticky) for each in waits
        ),
        figures={each.plan: each.figures for each in found},
        started={each.plan: each.begun for each in found if each.begun},
    )


def leave_out(shelf: Shelf, refused: Iterable[Refused]) -> bool:
    """Write down what is refused. True when it is not what was refused before; that its amounts grow is no news."""
    listed = list(refused)
    lines = sorted(f"{r.action.line()}: {r.sentence}" for r in listed)
    meant = plan_id("; ".join(sorted({r.sentence for r in listed})), (r.action for r in listed))
    return shelf.leave_out(lines, meant=meant)


def keys_of(plans: Iterable[HeldPlan]) -> Mapping[str, frozenset[str]]:
    return {plan.id: plan.keys for plan in plans}
