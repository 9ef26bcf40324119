# SPDX-License-Identifier: MIT
"""Making accounts again that Waldur names and the cluster has lost, through the loop and only with an approval.

For a site that lost its accounting database, and for single accounts when a person forces a sync in Waldur. What
stands is left alone, but for what an approved rebuild has begun and not finished: an account without its limits. A
membership pass brings the rest in step afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from http import HTTPStatus

from agent.config.model import Mode as PassMode
from agent.core.account_names import fold
from agent.core.actions import Action
from agent.core.errors import AccountsLost, NotApplied, PlanRefused, SiteAgentError, WaldurError
from agent.core.model import AllocationSpec, Part, Resource, Snapshot
from agent.core.plans import Outcome, Plan
from agent.core.scope import PassScope
from agent.plan import accounts
from agent.plan import lost as planner
from agent.plan.policy.gate import action_key
from agent.plan.policy.rules import PolicyContext
from agent.run import engine, waldur_facts
from agent.run.engine import Mode, Portion, Work
from agent.run.gate import UNBOUNDED_S, Pass
from agent.run.membership.mode import ACCOUNTS_AT_ONCE
from agent.run.membership.planning import SyncFacts, cases
from agent.run.results import PassReport, ResourceResult, Result, postponed, record
from agent.run.site import Site
from agent.run.waldur_facts import named_accounts
from agent.state import journal
from agent.state.held_plans import Approvals
from agent.waldur import orders, resources
from backends.base import BULK_PARTS, NAMES, Scope

log = logging.getLogger(__name__)

KEY = "rebuild"
MODE = PassMode.MEMBERSHIP_SYNC
READ_BACK = Scope(parts=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.TRES}))
FORCED = "forced sync in Waldur"
# What a task cannot finish its successors do, and a person after that.
FORCED_LASTS = timedelta(hours=1)
REASON = "rebuild: Waldur names it, and the cluster has lost it"


@dataclass(frozen=True)
class RebuildFacts:
    """Waldur and the cluster."""

    sync: SyncFacts
    # Keys of the actions of an approved rebuild that is not finished.
    begun: frozenset[str] = frozenset()
    # What is to be made was asked about once more.
    is_confirmed: bool = False


@dataclass(frozen=True)
class PlannedRebuild:
    """The accounts to be made again, by resource uuid."""

    resources: Sequence[Resource]
    specs: Mapping[str, AllocationSpec]
    # Those that cannot be.
    refused: Mapping[str, PlanRefused]
    snapshot: Snapshot
    # Why the site must be at fault, where so many are gone.
    fault: str = ""
    is_whole: bool = True

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        return self.missing(self.snapshot)

    def missing(self, snapshot: Snapshot) -> tuple[Action, ...]:
        """Return what is missing of all of them in a state of the cluster, accounts above others first."""
        steps = [step for spec in self.specs.values() for step in accounts.building(spec, snapshot, REASON)]
        return tuple(dict.fromkeys(steps))

    @property
    def context(self) -> PolicyContext:
        named = {spec.account.name for spec in self.specs.values()}
        named |= {ancestor.name for spec in self.specs.values() for ancestor in spec.ancestors}
        made = len(self.specs)
        why = (
            f"makes {made} account{'s' if made > 1 else ''} again that Waldur names and the cluster has lost"
        )
        return PolicyContext(named=frozenset(map(fold, named)), needs_approval=why)


def run_pass(site: Site) -> PassReport:
    """Make again what is missing, where its plan was approved; else the plan waits for that."""
    with engine.passing(site, MODE, is_recorded=False) as run:
        reconcile(run)
    return run.report


def run_forced(site: Site, *, seconds: float = UNBOUNDED_S) -> PassReport:
    """Make again what is missing because a person has forced a sync in Waldur: that is the approval, unless so many are
    gone that the site must be at fault. Then the plan waits for `approve`, as everywhere.
    """
    planned = None
    with engine.passing(site, MODE, subject=FORCED, seconds=seconds, is_recorded=False) as run:
        planned = reconcile(run).plan
    if planned is None or planned.fault or not run.report.held:
        if run.report.error or run.report.held or run.report.results:
            record(site.state_dir, run.report, subject=FORCED)
        return run.report
    for held in run.report.held:
        approvals = Approvals(site.state_dir, site.offering, KEY)
        approvals.approve(held.id, expires=datetime.now(UTC) + FORCED_LASTS, by=f"a {FORCED}")
        text = f"approved plan {held.short_id}: {held.reason}"
        journal.note(site.state_dir, site.offering, text, by=f"a {FORCED}", mode=KEY)
    with engine.passing(site, MODE, subject=FORCED, seconds=seconds) as run:
        reconcile(run)
    return run.report


def reconcile(run: Pass) -> Work[PlannedRebuild]:
    """Return the rebuild of a pass that is under way. Raises SiteAgentError where nothing could be planned."""
    run.cause = KEY
    work = engine.reconcile(run, Rebuild(run))
    assert work is not None
    return work


class Rebuild(Mode[RebuildFacts, PlannedRebuild]):
    """The accounts that are gone."""

    key = KEY

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self._failures: dict[str, SiteAgentError] = {}

    def observe(self) -> RebuildFacts:
        return observe(self.site)

    def plan(self, facts: RebuildFacts) -> PlannedRebuild:
        return plan(facts)

    def refine(self, facts: RebuildFacts, plan: PlannedRebuild) -> RebuildFacts | None:
        return confirm(self.site, facts, plan)

    def portions(self, work: Work[PlannedRebuild]) -> Iterator[Portion]:
        wanted = [action for action in work.plan.actions if work.allows(action)]
        uuids = list(work.plan.specs)
        for first in range(0, len(uuids), ACCOUNTS_AT_ONCE):
            specs = [work.plan.specs[uuid] for uuid in uuids[first : first + ACCOUNTS_AT_ONCE]]
            names = {account.name for spec in specs for account in (*spec.ancestors, spec.account)}
            some = [action for action in wanted if action.for_account in names]
            wanted = [action for action in wanted if action.for_account not in names]
            if some:
                yield Portion(Plan.of(some).cluster_actions(), tuple(uuids[first : first + ACCOUNTS_AT_ONCE]))

    def read_back(self, work: Work[PlannedRebuild], portion: Portion, outcomes: Sequence[Outcome]) -> None:
        errors = {outcome.action: outcome.error for outcome in outcomes if outcome.error}
        left = set(work.plan.missing(self.site.backend.observe(READ_BACK)))
        for uuid in portion.about:
            account = work.plan.specs[uuid].account.name
            own = [a for a in portion.actions if a in left and a.for_account == account]
            if own:
                unseen = NotApplied(f"the cluster does not show it: {own[0].render()}")
                self._failures[uuid] = next((errors[a] for a in own if a in errors), unseen)

    def failed(self, work: Work[PlannedRebuild], portion: Portion, error: SiteAgentError) -> None:
        self._failures.update(dict.fromkeys(portion.about, error))

    def tell(self, work: Work[PlannedRebuild]) -> None:
        """Record what became of each resource; Waldur gets no report. What is finished is not taken up again."""
        blocked = work.decision.blocked
        for uuid, spec in work.plan.specs.items():
            account, error = spec.account.name, self._failures.get(uuid)
            waits = next((why for action, why in blocked.items() if action.for_account == account), "")
            if error is not None:
                result = ResourceResult(uuid, postponed(error), account, str(error), error)
            else:
                done = Result.WAITING if waits else Result.DONE
                result = ResourceResult(uuid, done, account, waits or "made again")
            work.report.resources.append(result)
        for uuid, refused in work.plan.refused.items():
            work.report.resources.append(ResourceResult(uuid, Result.STUCK, "", str(refused), refused))
        if not (self._failures or blocked):
            Approvals(self.site.state_dir, self.site.offering, KEY).end()


def observe(site: Site) -> RebuildFacts:
    """Waldur and the cluster, each read once, and what was begun. Raises SiteAgentError."""
    read = waldur_facts.gather(site, PassScope())
    snapshot = site.backend.observe(Scope(BULK_PARTS, names=NAMES))
    sync = SyncFacts(read, snapshot, waldur_facts.sync_rules(site, read), site.backend.canonical)
    approvals = Approvals(site.state_dir, site.offering, KEY).open()
    return RebuildFacts(sync, frozenset(key for each in approvals if each.has_begun for key in each.keys))


def confirm(site: Site, facts: RebuildFacts, planned: PlannedRebuild) -> RebuildFacts | None:
    """Return the facts without resources that an order has ended or begun to change since Waldur was read; None where
    nothing is to be made, or was confirmed before. Raises WaldurError.
    """
    if facts.is_confirmed or not planned.specs:
        return None
    waldur = facts.sync.waldur
    under_way = dict(waldur.orders)
    for order in orders.actionable(site.client):
        under_way[order.resource_uuid] = under_way.get(order.resource_uuid, frozenset()) | {order.type}
    ended = set()
    for uuid, answer in resources.by_uuid(site.client, planned.specs).items():
        if isinstance(answer, WaldurError):
            if answer.status != HTTPStatus.NOT_FOUND:
                raise answer
            ended.add(uuid)
        elif answer.state not in resources.HANDLED:
            ended.add(uuid)
    left = [resource for resource in waldur.resources if resource.uuid not in ended]
    sync = replace(facts.sync, waldur=replace(waldur, resources=left, orders=under_way))
    return replace(facts, sync=sync, is_confirmed=True)


def plan(facts: RebuildFacts) -> PlannedRebuild:
    """Return what is missing of each resource whose account is gone, or was being made. Pure. Raises
    BackendUnavailable where that is unknown.
    """
    sync = facts.sync
    sync.snapshot.require(Part.ACCOUNTS, Part.ASSOCIATIONS, Part.TRES)
    specs: dict[str, AllocationSpec] = {}
    refused: dict[str, PlanRefused] = {}
    lost = []
    for case in cases(sync)[0]:
        stands = case.account in sync.snapshot.accounts
        if case.orders or (stands and not facts.begun):
            continue
        try:
            desired = planner.allocation(
                case.resource,
                sync.rules.offering,
                case.account,
                tuple(sorted(case.members.wanted)),
                sync.snapshot,
            )
            spec = sync.canonical(desired, sync.snapshot)
        except PlanRefused as error:
            if not stands:
                lost.append(case.resource)
                refused[case.resource.uuid] = error
            continue
        missing = accounts.building(spec, sync.snapshot, REASON)
        if not stands or not facts.begun.isdisjoint(map(action_key, missing)):
            lost.append(case.resource)
            specs[case.resource.uuid] = spec
    fault = ""
    try:
        planner.require_accounts(named_accounts(sync.waldur.resources), sync.snapshot)
    except AccountsLost as error:
        fault = str(error)
    return PlannedRebuild(lost, specs, refused, sync.snapshot, fault)
