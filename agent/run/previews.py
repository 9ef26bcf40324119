# SPDX-License-Identifier: MIT
"""What a pass of any mode would do now, with what the policy keeps from happening: to be shown, compared, written
down and carried out.

Each mode joins by one function in `PREVIEWS`; `plan`, `apply` and `drift` know nothing else of a mode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from agent.config.model import Mode
from agent.core.actions import Action, CancelJobs
from agent.core.plans import Plan
from agent.plan.policy import HeldPlan, Refused
from agent.run import membership, order_policy, orders
from agent.run.membership_facts import Reach
from agent.run.results import OrderResult, PassReport, ResourceResult, postponed
from agent.run.sites import Site

# What may differ between two plans that mean the same: words for people, and what changes by the second.
SPOKEN = frozenset({"reason"})
FLEETING: Mapping[type[Action], frozenset[str]] = {CancelJobs: frozenset({"jobs"})}


@dataclass(frozen=True, slots=True)
class Preview:
    """A pass over everything of one offering. `happens` is what the policy lets through, `unplanned` what nobody can
    plan now. `apply` carries it out, once, and asks the policy again.
    """

    happens: Plan
    held: tuple[HeldPlan, ...]
    refused: tuple[Refused, ...]
    notes: tuple[str, ...]
    unplanned: Sequence[OrderResult | ResourceResult]
    apply: Callable[[], PassReport]


def preview(site: Site, mode: Mode) -> Preview:
    """Observe, plan and judge. Changes nothing. Raises SiteAgentError."""
    return PREVIEWS[mode](site)


def preview_of_resource(site: Site, resource_uuid: str) -> Preview:
    """The same for the members, state and limits of one resource."""
    return _of_membership(site, Reach(resource_uuid=resource_uuid))


def fingerprint(action: Action) -> str:
    """The same as long as neither Waldur nor the cluster has moved: what was there before the action counts, too."""
    hidden = SPOKEN | FLEETING.get(type(action), frozenset())
    values = {name: value for name, value in asdict(action).items() if name not in hidden}
    return json.dumps([type(action).__name__, values], sort_keys=True, default=str)


def _of_orders(site: Site) -> Preview:
    planned = orders.plan(site)
    judgement = order_policy.judged(site, planned)
    going = [
        order_policy.allowed_part(plan, judgement)
        for plan in planned.plans
        if not order_policy.wait_reason(plan, judgement)
    ]
    return Preview(
        happens=Plan.of(action for plan in going for action in plan.actions),
        held=judgement.held,
        refused=judgement.refused,
        notes=tuple(f"order {p.case.order.uuid}: {note}" for p in planned.plans for note in p.notes),
        unplanned=planned.results,
        apply=lambda: orders.apply_planned(site, planned),
    )


def _of_membership(site: Site, reach: Reach = Reach()) -> Preview:
    planned = membership.plan(site, reach)
    judgement = membership.judged(site, planned)
    return Preview(
        happens=Plan(judgement.allowed),
        held=judgement.held,
        refused=judgement.refused,
        notes=tuple(
            f"resource {p.case.resource.uuid}: {note}"
            for p in planned.plans
            for note in (*((p.skipped,) if p.skipped else ()), *p.notes)
        ),
        unplanned=[
            ResourceResult(uuid, postponed(error), "", str(error), error)
            for uuid, error in planned.unread.items()
        ],
        apply=lambda: membership.apply_planned(site, planned),
    )


PREVIEWS: Mapping[Mode, Callable[[Site], Preview]] = {
    Mode.ORDER_PROCESS: _of_orders,
    Mode.MEMBERSHIP_SYNC: _of_membership,
}
