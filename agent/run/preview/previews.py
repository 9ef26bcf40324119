# SPDX-License-Identifier: MIT
"""What a pass of any mode would do now, with what the policy keeps from happening: to be shown, compared, written
down and carried out.

Each mode joins by one function in `PREVIEWS`; `plan`, `apply` and `drift` know nothing else of a mode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from agent.config.model import Mode
from agent.core.actions import Action, CancelJobs
from agent.core.directory_actions import AssignUsername
from agent.core.errors import SiteAgentError
from agent.core.plans import Plan
from agent.core.usage_actions import ReportUsage, ReportUserUsage
from agent.core.waldur_actions import FailResource, HealResource, WaldurAction
from agent.plan import membership as membership_planner
from agent.plan.policy.decreases import lowered
from agent.plan.policy.gate import HeldPlan, Refused
from agent.run import gate as policing
from agent.run.membership import mode as membership
from agent.run.membership.apply import Sync
from agent.run.membership.facts import Reach
from agent.run.membership.planning import PlannedSync
from agent.run.orders import decision as order_policy
from agent.run.orders import mode as orders
from agent.run.people import provisioning as followups
from agent.run.results import OrderResult, PassReport, ResourceResult, Result, postponed
from agent.run.site import Site
from agent.run.usage import mode as report

# What may differ between two plans that mean the same: words for people, and what changes by the second.
SPOKEN = frozenset({"reason"})
GROWING = (ReportUsage, ReportUserUsage)
FLEETING: Mapping[type[Action], frozenset[str]] = {
    CancelJobs: frozenset({"jobs"}),
    **dict.fromkeys(GROWING, frozenset({"before", "after"})),
}


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
    """The same as long as neither Waldur nor the cluster has moved: what was there before the action counts, too. Usage
    may grow, but nothing more of it may get less.
    """
    hidden = SPOKEN | FLEETING.get(type(action), frozenset())
    values = {name: value for name, value in asdict(action).items() if name not in hidden}
    if isinstance(action, GROWING):
        values["less"] = [(name, held) for name, held, _ in lowered(action)]
    return json.dumps([type(action).__name__, values], sort_keys=True, default=str)


def is_growth(action: Action) -> bool:
    """Usage that is told as it grows: jobs go on while a plan is looked at."""
    return isinstance(action, GROWING) and not any(lowered(action))


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
        notes=(
            *(f"order {p.case.order.uuid}: {note}" for p in planned.plans for note in p.notes),
            *judgement.notes,
        ),
        unplanned=planned.results,
        apply=lambda: orders.apply_planned(site, planned),
    )


def _of_membership(site: Site, reach: Reach = Reach()) -> Preview:
    """The pass with what goes with it: names before it, then what Waldur is told in the end, and groups. The last sync
    is left out: that it gets older is no difference.
    """
    planned = membership.plan(site, reach)
    judgement = membership.judged(site, planned)
    sync = Sync(
        site, planned, judgement, PassReport(Mode.MEMBERSHIP_SYNC, site.offering.uuid, site.offering.name)
    )
    notes: list[str] = []
    names = _unless_away(
        "usernames", notes, lambda: followups.foreseen_names(site, planned.facts, planned.snapshot)
    )
    groups = _unless_away("groups", notes, lambda: followups.foreseen_groups(sync))
    if any(isinstance(action, AssignUsername) for action in names):
        notes.append("who gets a username now joins the accounts in the next pass")
    told = [
        f"resource {p.case.resource.uuid}: {note}"
        for p in planned.plans
        for note in (*((p.skipped,) if p.skipped else ()), *p.notes)
    ]
    return Preview(
        happens=Plan.of([*names, *judgement.allowed, *_endings(sync), *groups]),
        held=judgement.held,
        refused=judgement.refused,
        notes=(*told, *judgement.notes, *notes),
        unplanned=[
            ResourceResult(uuid, postponed(error), "", str(error), error)
            for uuid, error in planned.unread.items()
        ],
        apply=lambda: _applied(site, planned),
    )


def _of_report(site: Site) -> Preview:
    planned = report.plan(site)
    judgement = report.judged(site, planned)
    skipped = {plan.resource.uuid: plan for month in planned.months for plan in month.plans if plan.skipped}
    return Preview(
        happens=Plan.of(judgement.allowed),
        held=judgement.held,
        refused=judgement.refused,
        notes=(*planned.notes, *planned.left_alone),
        unplanned=[
            ResourceResult(
                uuid, Result.STUCK if plan.needs_person else Result.WAITING, plan.account, plan.skipped
            )
            for uuid, plan in skipped.items()
        ],
        apply=lambda: report.apply_planned(site, planned),
    )


def _unless_away(what: str, notes: list[str], plan: Callable[[], Sequence[Action]]) -> Sequence[Action]:
    """What a directory holds costs its own part of the plan only, as in a pass."""
    try:
        return plan()
    except SiteAgentError as error:
        notes.append(f"{what} cannot be planned: {error}")
        return []


def _endings(sync: Sync) -> list[WaldurAction]:
    """What Waldur would be told of each resource in the end, if all goes well."""
    now, rules = datetime.now(UTC), sync.planned.rules
    found: list[WaldurAction] = []
    for plan in sync.planned.plans:
        fault = sync.faults.get(plan.case.resource.uuid)
        waits = any(action in sync.withheld for action in plan.actions)
        if plan.skipped or (plan.spec is None and fault is None):
            continue
        found += [
            action
            for action in membership_planner.closing(plan, rules, now, fault=fault)
            if isinstance(action, FailResource) or (isinstance(action, HealResource) and not waits)
        ]
    if not found:
        return []
    allowed = policing.judged(sync.site, Mode.MEMBERSHIP_SYNC, found, sync.planned.snapshot).allowed
    return [action for action in found if action in allowed]


def _applied(site: Site, planned: PlannedSync) -> PassReport:
    """The steps of an ordinary pass, with the plan that was looked at: who gets a name now joins in the next one."""
    naming = PassReport(Mode.MEMBERSHIP_SYNC, site.offering.uuid, site.offering.name)
    followups.named(site, planned.facts, planned.snapshot, naming)
    report = membership.apply_planned(site, planned)
    report.outcomes = [*naming.outcomes, *report.outcomes]
    report.problems = [*naming.problems, *report.problems]
    report.later = report.later or naming.later
    return report


PREVIEWS: Mapping[Mode, Callable[[Site], Preview]] = {
    Mode.ORDER_PROCESS: _of_orders,
    Mode.MEMBERSHIP_SYNC: _of_membership,
    Mode.REPORT: _of_report,
}
