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
from agent.core.errors import PassUnfinished, SiteAgentError
from agent.core.model import Deletion, Snapshot
from agent.core.plans import Plan
from agent.core.policy import PolicyRules
from agent.core.waldur_actions import FailResource, MarkResourceOk
from agent.plan.policy.gate import Decision, HeldPlan, Refused
from agent.plan.provider_groups import DirectoryNames
from agent.run import api_keys, engine, gate, passes
from agent.run.api_keys import PlannedAnswers
from agent.run.membership import member_statuses, planning
from agent.run.membership import mode as membership
from agent.run.membership.mode import Synced
from agent.run.membership.planning import PlannedSync
from agent.run.membership.progress import MembershipProgress
from agent.run.orders import mode as orders
from agent.run.orders.progress import allowed_part, wait_reason
from agent.run.people import departures, homes, project_directories, provider_groups, usernames
from agent.run.people import groups as group_mode
from agent.run.people.naming import names_unknown
from agent.run.results import OrderResult, PassReport, ResourceResult, Result, postponed
from agent.run.scope import PassScope
from agent.run.site import Site
from agent.run.usage import keys as usage_of_keys
from agent.run.usage import mode as usage
from agent.run.waldur_facts import MembershipFacts

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


class _DryRun:
    """The loops of one pass, decided on in their order: what each costs people counts for those after it. `held`,
    `refused`: what does not happen; `shown`: all that was decided on; `notes`: what cannot be planned.
    """

    def __init__(self, site: Site, rules: PolicyRules) -> None:
        self._site = site
        self._rules = rules
        self._decisions: list[Decision] = []
        self.shown: set[Action] = set()
        self.notes: list[str] = []

    @property
    def held(self) -> tuple[HeldPlan, ...]:
        return tuple(plan for each in self._decisions for plan in each.held)

    @property
    def refused(self) -> tuple[Refused, ...]:
        return tuple(refused for each in self._decisions for refused in each.refused)

    def decide(self, key: str, plan: gate.Planned) -> Decision:
        """Return what the policy lets through. Raises StateError."""
        found = gate.decide_dry(self._site, self._rules, key, plan, after=self._decisions)
        self._decisions.append(found)
        self.shown.update(plan.actions)
        return found

    def allowed(self, what: str, key: str, plan: Callable[[], gate.Planned]) -> Sequence[Action]:
        """Return what happens of a loop beside the mode's own; nothing where it cannot be planned."""
        return _unless_away(what, self.notes, lambda: self.decide(key, plan()).allowed)


def _of_orders(site: Site) -> Preview:
    rules = gate.rules_of(site)
    steps = orders.steps(site, rules)
    plan = engine.plan_of(steps)
    dry_run = _DryRun(site, rules)
    decision = dry_run.decide(steps.key, plan)
    going = [allowed_part(each, decision) for each in plan.plans if not wait_reason(each, decision)]
    notes = (f"order {each.case.order.uuid}: {note}" for each in plan.plans for note in each.notes)
    keys = _keys(dry_run, lambda: api_keys.plan_pending(site)) if gate.may_tell(rules) else ()

    def apply() -> PassReport:
        with engine.passing(site, Mode.ORDER_PROCESS) as run:
            engine.carry_out(run, steps, plan)
            api_keys.answer_pending(run)
        return run.report

    return Preview(
        allowed=Plan.of([*(action for each in going for action in each.actions), *keys]),
        held=dry_run.held,
        refused=dry_run.refused,
        notes=(*notes, *decision.notes, *dry_run.notes),
        unplanned=plan.facts.results,
        apply=apply,
    )


def _of_membership(site: Site, scope: PassScope = PassScope()) -> Preview:
    """The pass with what goes with it: names before it, then what Waldur is told in the end, groups, directories and
    homes. The last sync is left out: that it gets older is no difference. Who gets a name now joins in the pass after
    it.
    """
    rules, mode = gate.rules_of(site), Mode.MEMBERSHIP_SYNC
    progress = MembershipProgress(site, datetime.now(UTC))
    dry_run = _DryRun(site, rules)
    names: list[Action] = []

    def name_people(facts: MembershipFacts, seen: Snapshot) -> MembershipFacts:
        return _named(dry_run, site, facts, seen, names) if gate.may_tell(rules) else facts

    steps = membership.steps(site, rules, progress, scope, name_people)
    plan = engine.plan_of(steps)
    waldur = plan.facts.waldur
    decision = dry_run.decide(steps.key, plan)
    progress.take_up(plan, decision)
    beside: Sequence[Action] = ()
    if gate.may_tell(rules):
        beside = _beside_members(dry_run, site, Synced(plan, decision, progress.errors), progress)
    told = (
        f"resource {each.case.resource.uuid}: {note}"
        for each in plan.plans
        for note in (*((each.skipped,) if each.skipped else ()), *each.notes)
    )

    def apply() -> PassReport:
        with engine.passing(site, mode, subject=str(scope)) as run:
            _require_renamed(plan, passes.name_people(run, waldur, plan.snapshot))
            work = engine.carry_out(run, steps, plan)
            done = Synced(work.plan, work.decision, progress.errors, progress.seen, progress.unremovable)
            passes.provide_for_members(run, done, shown=dry_run.shown)
        return run.report

    return Preview(
        allowed=Plan.of([*names, *decision.allowed, *beside]),
        held=dry_run.held,
        refused=dry_run.refused,
        notes=(*told, *decision.notes, *dry_run.notes),
        unplanned=[
            ResourceResult(uuid, postponed(error), "", str(error), error)
            for uuid, error in plan.unread.items()
        ],
        apply=apply,
        sync=plan,
    )


def _named(
    dry_run: _DryRun, site: Site, waldur: MembershipFacts, seen: Snapshot, names: list[Action]
) -> MembershipFacts:
    """Add to `names` the names that people get before the members are looked at. Return the facts, with the old names
    of those who are not renamed.
    """
    users, unknown = waldur.users, ""

    def going() -> Sequence[Action]:
        nonlocal users, unknown
        try:
            planned = usernames.plan(site, replace(waldur, cluster=seen))
            allowed = dry_run.decide(usernames.key_of(planned), planned).allowed
        except SiteAgentError as error:
            unknown = names_unknown(site, waldur.offering, error)
            raise
        users = usernames.as_in_directory(users, planned, allowed)
        return allowed

    names += _unless_away("usernames", dry_run.notes, going)
    if only(AssignUsername, names):
        dry_run.notes.append("who gets a username now joins the accounts in the next pass")
    return replace(waldur, users=users, names_unknown=unknown)


def _require_renamed(plan: PlannedSync, now: MembershipFacts) -> None:
    """Raise PassUnfinished where somebody would be removed whom a plan by the directory's names of `now` keeps."""
    removals = frozenset(only(RemoveMember, plan.actions))
    rules = replace(plan.facts.rules, nobody_leaves=plan.facts.rules.nobody_leaves or now.names_unknown)
    again = planning.plan(replace(plan.facts, waldur=now, rules=rules)) if removals else plan
    if not removals <= frozenset(again.actions):
        raise PassUnfinished(
            "the directory has not got all names that the plan gives people on the cluster, which is left as it is: "
            "make a new plan"
        )


def _beside_members(
    dry_run: _DryRun, site: Site, synced: Synced, progress: MembershipProgress
) -> Sequence[Action]:
    """Return what a pass does beside the members, decided on in its order: `passes.provide_for_members`."""
    plan, decision = synced.plan, synced.decision
    waldur, desired = plan.facts.waldur, passes.desired_groups(synced)

    def homes_planned() -> gate.Planned:
        planned = homes.plan(site, desired.users)
        dry_run.notes.extend(f"homes: {words}" for words in planned.told)
        return planned

    def project_groups() -> gate.Planned:
        planned = provider_groups.plan(site, DirectoryNames(waldur.users, waldur.names_unknown))
        dry_run.notes.extend(f"project groups: {words}" for words in planned.told)
        return planned

    groups = dry_run.allowed("groups", group_mode.KEY, lambda: group_mode.plan(site, desired))
    folders = (
        *dry_run.allowed(
            "project directories",
            project_directories.KEY,
            lambda: project_directories.plan(site, desired.members.keys()),
        ),
        *dry_run.allowed("homes", homes.KEY, homes_planned),
    )
    leavers = _unless_away(
        "deletion of users", dry_run.notes, lambda: _deletions(dry_run, site, plan, decision)
    )
    if plan.is_whole:
        groups = (*groups, *dry_run.allowed("project groups", provider_groups.KEY, project_groups))
    keys = _keys(dry_run, lambda: api_keys.plan(site, waldur.resources))
    endings = [
        action
        for each in plan.plans
        for action in progress.closing(plan, each)
        if isinstance(action, FailResource) or (isinstance(action, MarkResourceOk) and each.spec)
    ]
    statuses = _member_statuses(site, plan, decision)
    return (*endings, *leavers, *statuses, *keys, *groups, *folders)


def _keys(dry_run: _DryRun, plan: Callable[[], PlannedAnswers]) -> Sequence[Action]:
    """Return what is done about the keys of resources, as far as the policy lets it happen."""

    def going() -> Sequence[Action]:
        planned = plan()
        return api_keys.going(planned.actions, frozenset(dry_run.decide(api_keys.KEY, planned).allowed))

    return _unless_away("keys", dry_run.notes, going)


def _member_statuses(site: Site, plan: PlannedSync, decision: Decision) -> Sequence[Action]:
    """Return what Waldur would be told of members, when all goes well that is allowed."""
    seen = plan.snapshot
    if member_statuses.is_wanted(site, plan):
        for action in (*only(AddMember, decision.allowed), *only(RemoveMember, decision.allowed)):
            seen = action.applied_to(seen)
    return member_statuses.news(site, plan, seen, {})


def _deletions(dry_run: _DryRun, site: Site, plan: PlannedSync, decision: Decision) -> Sequence[Action]:
    """Return how the deletion of offering users would end, when all goes well that is allowed. Raises
    SiteAgentError.
    """
    facts, seen = plan.facts, plan.snapshot
    begun = {action.offering_user for action in only(BeginDeletion, decision.allowed)}
    users = [replace(u, state=Deletion.DELETING) if u.uuid in begun else u for u in facts.waldur.users]
    names = {fold(user.cluster_name) for user in facts.departing}
    for action in only(RemoveMember, decision.allowed):
        if fold(action.user) in names:
            seen = action.applied_to(seen)
    expected = replace(facts, waldur=replace(facts.waldur, users=users))
    leaving = passes.departures_of(expected, seen, {})
    planned = departures.plan(site, leaving, facts.waldur.offering, seen)
    allowed = frozenset(dry_run.decide(departures.KEY, planned).allowed)
    going = departures.going(planned.departures, allowed.__contains__)
    return [action for _, actions in going for action in actions]


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
