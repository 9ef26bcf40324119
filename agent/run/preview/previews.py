# SPDX-License-Identifier: MIT
"""What a pass of any mode would do now, with what the policy keeps from happening: to be shown, compared, written
down and carried out.

Each mode joins by one function in `PREVIEWS`; `plan`, `apply` and `drift` know nothing else of a mode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from agent.config.model import Mode
from agent.core.account_names import fold
from agent.core.actions import Action, AddMember, RemoveMember, only
from agent.core.directory_actions import AssignUsername, BeginDeletion
from agent.core.errors import SiteAgentError
from agent.core.model import Deletion
from agent.core.plans import Plan
from agent.core.waldur_actions import FailResource, MarkResourceOk
from agent.plan.policy.gate import Decision, HeldPlan, Refused
from agent.run import api_keys, engine, gate, passes
from agent.run.membership import member_statuses
from agent.run.membership import mode as membership
from agent.run.membership.facts import PassScope
from agent.run.membership.mode import Synced
from agent.run.membership.planning import PlannedSync
from agent.run.membership.progress import MembershipProgress
from agent.run.orders import mode as orders
from agent.run.orders.progress import allowed_part, wait_reason
from agent.run.people import departures, project_directories, provider_groups, usernames
from agent.run.people import groups as group_mode
from agent.run.results import OrderResult, PassReport, ResourceResult, Result, postponed
from agent.run.site import Site
from agent.run.usage import keys as usage_of_keys
from agent.run.usage import mode as usage

# What may differ between two plans that mean the same: words for people. What changes by the second, an action says.
SPOKEN = frozenset({"reason"})


@dataclass(frozen=True, slots=True)
class Preview:
    """A pass over everything of one offering. `happens` is what the policy lets through, `unplanned` what nobody can
    plan now. `apply` carries it out, once, and asks the policy again. `sync`: what a pass over members was planned
    from, None for other modes.
    """

    allowed: Plan
    held: tuple[HeldPlan, ...]
    refused: tuple[Refused, ...]
    notes: tuple[str, ...]
    unplanned: Sequence[OrderResult | ResourceResult]
    apply: Callable[[], PassReport]
    sync: PlannedSync | None = None


def preview(site: Site, mode: Mode) -> Preview:
    """Observe, plan and judge. Changes nothing. Raises SiteAgentError."""
    return PREVIEWS[mode](site)


def preview_of_resource(site: Site, resource_uuid: str) -> Preview:
    """Return the same for the members, state and limits of one resource."""
    return _of_membership(site, PassScope.of(resource_uuid=resource_uuid))


def fingerprint(action: Action) -> str:
    """Return the same as long as neither Waldur nor the cluster has moved: what was there before the action counts,
    too. Usage may grow, but nothing more of it may get less.
    """
    hidden = SPOKEN | action.fleeting
    values = {name: value for name, value in asdict(action).items() if name not in hidden}
    if action.grows:
        values["less"] = [(name, held) for name, held, _ in action.decreases()]
    return json.dumps([type(action).__name__, values], sort_keys=True, default=str)


def _of_orders(site: Site) -> Preview:
    rules = gate.rules_of(site)
    steps = orders.steps(site, rules)
    plan = engine.plan_of(steps)
    decision = gate.decide_dry(site, rules, steps.key, plan)
    going = [allowed_part(each, decision) for each in plan.plans if not wait_reason(each, decision)]
    notes = (f"order {each.case.order.uuid}: {note}" for each in plan.plans for note in each.notes)

    def apply() -> PassReport:
        with engine.passing(site, Mode.ORDER_PROCESS) as run:
            engine.carry_out(run, steps, plan)
            api_keys.answer_pending(run)
        return run.report

    problems: list[str] = []
    keys = (
        _unless_away("keys", problems, lambda: api_keys.plan_pending(site).actions)
        if gate.may_tell(rules)
        else ()
    )
    return Preview(
        allowed=Plan.of([*(action for each in going for action in each.actions), *keys]),
        held=decision.held,
        refused=decision.refused,
        notes=(*notes, *decision.notes, *problems),
        unplanned=plan.facts.results,
        apply=apply,
    )


def _of_membership(site: Site, scope: PassScope = PassScope()) -> Preview:
    """The pass with what goes with it: names before it, then what Waldur is told in the end, and groups. The last sync
    is left out: that it gets older is no difference. Who gets a name now joins in the pass after it.
    """
    rules, mode = gate.rules_of(site), Mode.MEMBERSHIP_SYNC
    progress = MembershipProgress(site, datetime.now(UTC))
    steps = membership.steps(site, rules, progress, scope)
    plan = engine.plan_of(steps)
    decision = gate.decide_dry(site, rules, steps.key, plan)
    progress.take_up(plan, decision)
    synced = Synced(plan, decision, progress.errors)
    waldur = plan.facts.waldur
    notes: list[str] = []
    names: Sequence[Action] = ()
    held, refused = [*decision.held], [*decision.refused]
    groups: Sequence[Action] = ()
    folders: Sequence[Action] = ()
    endings: list[Action] = []
    if gate.may_tell(rules):
        desired = passes.desired_groups(synced)
        inside = passes.members_of(waldur, plan.snapshot)

        def judged(key: str, planned: gate.Planned) -> Sequence[Action]:
            found = gate.decide_dry(site, rules, key, planned)
            held.extend(found.held)
            refused.extend(found.refused)
            return found.allowed

        def named() -> Sequence[Action]:
            planned = usernames.plan(
                site, waldur.users, waldur.offering, snapshot=plan.snapshot, members=inside
            )
            return judged(usernames.KEY, planned)

        def project_groups() -> Sequence[Action]:
            planned = provider_groups.plan(site, waldur.users)
            notes.extend(f"project groups: {words}" for words in planned.told)
            return judged(provider_groups.KEY, planned)

        names = _unless_away("usernames", notes, named)
        groups = _unless_away("groups", notes, lambda: judged(group_mode.KEY, group_mode.plan(site, desired)))
        folders = _unless_away(
            "project directories",
            notes,
            lambda: judged(project_directories.KEY, project_directories.plan(site, desired.members.keys())),
        )
        if plan.is_whole:
            groups = (*groups, *_unless_away("project groups", notes, project_groups))
        deletions = _unless_away("deletion of users", notes, lambda: _deletions(site, plan, decision))
        endings = [
            action
            for each in plan.plans
            for action in progress.closing(plan, each)
            if isinstance(action, FailResource) or (isinstance(action, MarkResourceOk) and each.spec)
        ]
        endings += [*deletions, *_member_statuses(site, plan, decision)]
        endings += _unless_away("keys", notes, lambda: api_keys.plan(site, waldur.resources).actions)
    if only(AssignUsername, names):
        notes.append("who gets a username now joins the accounts in the next pass")
    told = (
        f"resource {each.case.resource.uuid}: {note}"
        for each in plan.plans
        for note in (*((each.skipped,) if each.skipped else ()), *each.notes)
    )

    def apply() -> PassReport:
        with engine.passing(site, mode, subject=str(scope)) as run:
            passes.name_people(run, waldur, plan.snapshot)
            work = engine.carry_out(run, steps, plan)
            done = Synced(work.plan, work.decision, progress.errors, progress.seen, progress.unremovable)
            passes.provide_for_members(run, done)
        return run.report

    return Preview(
        allowed=Plan.of([*names, *decision.allowed, *endings, *groups, *folders]),
        held=tuple(held),
        refused=tuple(refused),
        notes=(*told, *decision.notes, *notes),
        unplanned=[
            ResourceResult(uuid, postponed(error), "", str(error), error)
            for uuid, error in plan.unread.items()
        ],
        apply=apply,
        sync=plan,
    )


def _member_statuses(site: Site, plan: PlannedSync, decision: Decision) -> Sequence[Action]:
    """Return what Waldur would be told of members, when all goes well that is allowed."""
    seen = plan.snapshot
    if member_statuses.is_wanted(site, plan):
        for action in (*only(AddMember, decision.allowed), *only(RemoveMember, decision.allowed)):
            seen = action.applied_to(seen)
    return member_statuses.news(site, plan, seen, {})


def _deletions(site: Site, plan: PlannedSync, decision: Decision) -> Sequence[Action]:
    """Return how the deletion of offering users would end, when all goes well that is allowed."""
    facts, seen = plan.facts, plan.snapshot
    begun = {action.offering_user for action in only(BeginDeletion, decision.allowed)}
    users = [replace(u, state=Deletion.DELETING) if u.uuid in begun else u for u in facts.waldur.users]
    names = {fold(user.username) for user in facts.departing}
    for action in only(RemoveMember, decision.allowed):
        if fold(action.user) in names:
            seen = action.applied_to(seen)
    expected = replace(facts, waldur=replace(facts.waldur, users=users))
    leaving = passes.departures_of(expected, seen, {})
    return departures.plan(site, leaving, facts.waldur.offering, seen).actions


def _of_report(site: Site) -> Preview:
    planned = usage.plan(site)
    decision = gate.decide_dry(site, gate.rules_of(site), usage.MODE, planned)
    skipped = {plan.resource.uuid: plan for month in planned.months for plan in month.plans if plan.skipped}
    problems: list[str] = []
    of_keys = _unless_away(
        "usage of keys", problems, lambda: usage_of_keys.plan(site, lambda: datetime.now(site.zone))
    )
    return Preview(
        allowed=Plan.of([*decision.allowed, *of_keys]),
        held=decision.held,
        refused=decision.refused,
        notes=(*planned.notes, *planned.left_alone, *problems),
        unplanned=[
            ResourceResult(
                uuid, Result.STUCK if plan.needs_person else Result.WAITING, plan.account, plan.skipped
            )
            for uuid, plan in skipped.items()
        ],
        apply=lambda: usage.carry_out(site, planned),
    )


def _unless_away(what: str, notes: list[str], plan: Callable[[], Sequence[Action]]) -> Sequence[Action]:
    """What a directory holds costs its own part of the plan only, as in a pass."""
    try:
        return plan()
    except SiteAgentError as error:
        notes.append(f"{what} cannot be planned: {error}")
        return []


PREVIEWS: Mapping[Mode, Callable[[Site], Preview]] = {
    Mode.ORDER_PROCESS: _of_orders,
    Mode.MEMBERSHIP_SYNC: _of_membership,
    Mode.REPORT: _of_report,
}
