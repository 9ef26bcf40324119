# SPDX-License-Identifier: MIT
"""Carrying out a membership pass: the cluster in portions, each read back; then Waldur is told.

A portion's outcomes are in the journal before the next one begins, so a pass that is cut off anywhere has lost
nothing: the next one plans from what stands. A resource is set erred for a reason of its own that time will not
mend, and only while its account stands; an outage errs nobody.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from agent.config.model import Mode
from agent.core.actions import Action, ClusterAction
from agent.core.errors import BackendError, NotApplied, PassUnfinished, SiteAgentError, WaldurError
from agent.core.model import Part, Snapshot
from agent.core.plans import Outcome, Plan
from agent.core.waldur_actions import (
    ClaimAccount,
    FailResource,
    HealResource,
    RefreshLastSync,
    ReportLimits,
    ReportMetadata,
    WaldurAction,
)
from agent.plan import membership
from agent.plan.membership import ResourcePlan
from agent.plan.policy import Judgement
from agent.run import journal, policing
from agent.run.membership_plan import PlannedSync
from agent.run.results import PassReport, ResourceResult, Result, postponed
from agent.run.sites import Site
from agent.waldur import pool, resources
from agent.waldur.client import WaldurClient
from backends.base import Scope

log = logging.getLogger(__name__)

MODE = Mode.MEMBERSHIP_SYNC
# One portion is written and read back in well under a minute, as a load file of so many accounts is.
ACCOUNTS_AT_ONCE = 120
READ_BACK = Scope(parts=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS}))

Sender = Callable[[WaldurClient, Any], None]
SENDERS: Mapping[type[WaldurAction], Sender] = {
    ClaimAccount: lambda client, a: resources.set_backend_id(client, a.resource, a.account),
    ReportLimits: lambda client, a: resources.set_limits(client, a.resource, dict(a.limits)),
    ReportMetadata: lambda client, a: resources.set_metadata(client, a.resource, json.loads(a.metadata)),
    FailResource: lambda client, a: resources.fail(client, a.resource, a.message),
    HealResource: lambda client, a: resources.heal(client, a.resource),
    RefreshLastSync: lambda client, a: resources.refresh_last_sync(client, a.resource),
}


class Sync:
    """One pass under way: what is allowed, and what went wrong for which resource."""

    def __init__(self, site: Site, planned: PlannedSync, judgement: Judgement, report: PassReport) -> None:
        self.site = site
        self.planned = planned
        self.report = report
        self.judgement = judgement
        self.errors: dict[str, SiteAgentError] = dict(planned.unread)
        self._allowed = frozenset(judgement.allowed)

    def allowed(self, plan: ResourcePlan) -> list[ClusterAction]:
        return [action for action in plan.cluster_actions() if action in self._allowed]

    def done(self, outcomes: Sequence[Outcome]) -> None:
        """Into the report, the journal and the log."""
        self.report.outcomes += outcomes
        journal.record(self.site, MODE, outcomes)
        for outcome in outcomes:
            if outcome.error is None:
                log.info("%s", outcome.action.render())
            else:
                log.warning("failed: %s: %s", outcome.action.render(), outcome.error)

    def send(self, actions: Sequence[WaldurAction]) -> dict[Action, SiteAgentError]:
        """Tell Waldur, several requests at a time; what failed, by action."""
        client = self.site.client
        answers = pool.each(actions, lambda action: SENDERS[type(action)](client, action))
        failed: dict[Action, SiteAgentError] = {
            action: answer for action, answer in answers.items() if isinstance(answer, WaldurError)
        }
        self.done([Outcome(action, failed.get(action)) for action in actions])
        return failed


def apply(sync: Sync, *, now: datetime, until_s: float) -> None:
    """All of it. `until_s` (monotonic clock): no new portion is begun after it; what is left is told as unfinished."""
    changed = [plan for plan in sync.planned.plans if sync.allowed(plan)]
    left = _portions(changed)
    for portion in left:
        if time.monotonic() > until_s:
            _unfinished(sync, portion)
        else:
            _change_cluster(sync, portion)
    _tell_waldur(sync, now)
    _conclude(sync)


def _portions(plans: Sequence[ResourcePlan]) -> list[list[ResourcePlan]]:
    return [list(plans[start : start + ACCOUNTS_AT_ONCE]) for start in range(0, len(plans), ACCOUNTS_AT_ONCE)]


def _unfinished(sync: Sync, portion: Sequence[ResourcePlan]) -> None:
    for plan in portion:
        sync.errors[plan.case.resource.uuid] = PassUnfinished(
            "the pass used up its time before it came to this resource: the next one goes on"
        )


def _change_cluster(sync: Sync, portion: Sequence[ResourcePlan]) -> None:
    """Apply one portion and read it back: what a second plan still holds has failed."""
    wanted = Plan.of(action for plan in portion for action in sync.allowed(plan)).cluster_actions()
    backend = sync.site.backend
    try:
        outcomes = list(backend.apply(wanted))
        sync.done(outcomes)
        seen = backend.observe(READ_BACK)
    except BackendError as error:
        sync.errors |= {plan.case.resource.uuid: error for plan in portion}
        return
    failed = {outcome.action: outcome.error for outcome in outcomes if outcome.error}
    for plan, again in zip(portion, sync.planned.again(portion, _completed(seen, sync.planned)), strict=True):
        problem = _judged(sync, plan, again, failed)
        if problem is not None:
            sync.errors[plan.case.resource.uuid] = problem


def _completed(seen: Snapshot, planned: PlannedSync) -> Snapshot:
    """The second look, with the parts that cannot have changed from the first."""
    first = planned.snapshot
    return Snapshot(
        cluster=seen.cluster,
        accounts=seen.accounts,
        associations=seen.associations,
        default_accounts=seen.default_accounts,
        tres=first.tres,
        qos=first.qos,
        user_limits=seen.user_limits,
        complete=seen.complete | (first.complete & {Part.TRES, Part.QOS}),
    )


def _judged(
    sync: Sync, plan: ResourcePlan, again: ResourcePlan, failed: Mapping[Action, SiteAgentError]
) -> SiteAgentError | None:
    """What keeps the resource from being in step; an account that is gone meanwhile is nobody's fault."""
    if again.skipped:
        return NotApplied(f"the cluster changed meanwhile: {again.skipped}")
    allowed = set(sync.allowed(plan))
    left = [action for action in again.cluster_actions() if action in allowed]
    errors = [error for action in allowed if (error := failed.get(action))]
    if lasting := next((error for error in errors if not error.retryable), None):
        return lasting
    if errors:
        return errors[0]
    return NotApplied(f"the cluster does not show it: {left[0].render()}") if left else None


def _tell_waldur(sync: Sync, now: datetime) -> None:
    """Limits and metadata as they are now, then that the resource is in step, or why it is not."""
    wanted = {
        plan.case.resource.uuid: [a for a in plan.actions if isinstance(a, WaldurAction)]
        for plan in sync.planned.plans
        if plan.case.resource.uuid not in sync.errors
    }
    first = _permitted(
        sync, [*sync.planned.claims, *(action for several in wanted.values() for action in several)]
    )
    failed = sync.send(first)
    for uuid, actions in wanted.items():
        if error := next((failed[action] for action in actions if action in failed), None):
            sync.errors[uuid] = error
    closing = [
        action for plan in sync.planned.plans if not plan.skipped for action in _closing(sync, plan, now)
    ]
    sync.send(_permitted(sync, closing))


def _closing(sync: Sync, plan: ResourcePlan, now: datetime) -> Iterator[WaldurAction]:
    error = sync.errors.get(plan.case.resource.uuid)
    for action in membership.closing(plan, error, sync.planned.rules, now):
        if isinstance(action, WaldurAction):
            yield action


def _permitted(sync: Sync, actions: Sequence[WaldurAction]) -> list[WaldurAction]:
    """What the site's policy lets us tell Waldur: nothing in a mode that only observes, or in a pause."""
    allowed = policing.judged(sync.site, MODE, actions, sync.planned.snapshot).allowed
    return [action for action in actions if action in allowed]


def _conclude(sync: Sync) -> None:
    """One result for every resource that was not in step, or is not now."""
    blocked = {action for held in sync.judgement.held for action in held.actions}
    for plan in sync.planned.plans:
        result = _result(sync, plan, blocked)
        if result is None:
            sync.report.in_step += 1
        else:
            sync.report.resources.append(result)
    for uuid, error in sync.planned.unread.items():
        sync.report.resources.append(ResourceResult(uuid, postponed(error), "", str(error), error))


def _result(sync: Sync, plan: ResourcePlan, blocked: set[Action]) -> ResourceResult | None:
    uuid, account = plan.case.resource.uuid, plan.account
    error = sync.errors.get(uuid)
    if error is not None:
        return ResourceResult(uuid, postponed(error), account, str(error), error)
    if plan.skipped:
        return ResourceResult(uuid, Result.WAITING, account, plan.skipped)
    if held := next((action for action in plan.actions if action in blocked), None):
        return ResourceResult(uuid, Result.WAITING, account, sync.judgement.reason(held))
    if sync.allowed(plan):
        return ResourceResult(uuid, Result.DONE, account, f"{len(sync.allowed(plan))} changes")
    return None
