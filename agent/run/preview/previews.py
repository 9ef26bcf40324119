# SPDX-License-Identifier: MIT
"""What a pass of any mode would do now, with what the policy keeps from happening: to be printed, compared, written
down and carried out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from agent.config.model import Mode
from agent.core.actions import Action
from agent.core.plans import Plan
from agent.core.scope import EVERYTHING, PassScope
from agent.plan.policy.gate import HeldPlan, Refused
from agent.run import passes
from agent.run.membership.planning import PlannedSync
from agent.run.results import OrderResult, PassReport, ResourceResult
from agent.run.site import Site

# What may differ between two plans that mean the same: words for people. What changes by the second, an action says.
SPOKEN = frozenset({"reason"})


@dataclass(frozen=True, slots=True)
class Preview:
    """A pass over everything of one offering."""

    # What the policy lets through.
    allowed: Plan
    held: tuple[HeldPlan, ...]
    refused: tuple[Refused, ...]
    notes: tuple[str, ...]
    # What cannot be planned now.
    unplanned: Sequence[OrderResult | ResourceResult]
    # Carries it out, once, and asks the policy again.
    apply: Callable[[], PassReport]
    # What a pass over members was planned from, None for other modes.
    sync: PlannedSync | None = None


def preview(site: Site, mode: Mode, scope: PassScope = EVERYTHING) -> Preview:
    """Observe, plan and decide. Changes nothing. Raises SiteAgentError."""
    looked = passes.look(site, mode, scope)
    works = looked.works
    return Preview(
        allowed=Plan.of(action for work in works for action in work.mode.shows(work)),
        held=tuple(plan for work in works for plan in work.decision.held),
        refused=tuple(refused for work in works for refused in work.decision.refused),
        notes=tuple(dict.fromkeys(looked.report.notes)),
        unplanned=[each for work in works for each in work.mode.unplanned(work.plan)],
        apply=lambda: passes.apply_shown(looked),
        sync=next((work.plan for work in works if isinstance(work.plan, PlannedSync)), None),
    )


def preview_of_resource(site: Site, resource_uuid: str) -> Preview:
    """Return the same for the members, state and limits of one resource."""
    return preview(site, Mode.MEMBERSHIP_SYNC, PassScope.of(resource_uuid=resource_uuid))


def fingerprint(action: Action) -> str:
    """Return the same as long as neither Waldur nor the cluster has moved: what was there before the action counts,
    too. Usage may grow, but nothing more of it may get less.
    """
    hidden = SPOKEN | action.fleeting
    values = {name: value for name, value in asdict(action).items() if name not in hidden}
    if action.grows:
        values["less"] = [(name, held) for name, held, _ in action.decreases()]
    return json.dumps([type(action).__name__, values], sort_keys=True, default=str)
