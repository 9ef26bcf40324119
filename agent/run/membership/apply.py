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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from agent.config.model import Mode
from agent.core.actions import (
    Action,
    AddMember,
    AllowSubmission,
    BlockSubmission,
    ClusterAction,
    RemoveMember,
    SetQos,
)
from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    CommandFailed,
    DoneInPart,
    MemberRefused,
    NotApplied,
    PassUnfinished,
    PlanRefused,
    SiteAgentError,
    WaldurError,
)
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
from agent.plan.policy.gate import Judgement
from agent.plan.policy.rules import Why
from agent.run import gate as policing
from agent.run.membership.planning import PlannedSync
from agent.run.results import PassReport, ResourceResult, Result, postponed
from agent.run.site import Site
from agent.state import blocked, journal
from agent.waldur import pool, resources
from agent.waldur.client import WaldurClient
from backends.base import Scope

log = logging.getLogger(__name__)

MODE = Mode.MEMBERSHIP_SYNC
# One portion is written and read back in well under a minute, as a load file of so many accounts is.
ACCOUNTS_AT_ONCE = 120
USERS_AT_ONCE = 200
READ_BACK = Scope(parts=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS}))

Item = TypeVar("Item")
Told = TypeVar("Told", bound=WaldurAction)
Sender = Callable[[WaldurClient, Any], None]
SENDERS: Mapping[type[WaldurAction], Sender] = {
    ClaimAccount: lambda client, a: resources.set_backend_id(client, a.resource, a.account),
    ReportLimits: lambda client, a: resources.set_limits(client, a.resource, dict(a.limits)),
    ReportMetadata: lambda client, a: resources.set_metadata(client, a.resource, json.loads(a.metadata)),
    FailResource: lambda client, a: resources.fail(client, a.resource, a.message),
    HealResource: lambda client, a: resources.heal(client, a.resource),
    RefreshLastSync: lambda client, a: resources.refresh_last_sync(client, a.resource),
}


@dataclass(frozen=True, slots=True)
class Portion:
    """Actions that are carried out and read back together, and the plans that they are of."""

    actions: tuple[ClusterAction, ...]
    plans: tuple[ResourcePlan, ...]


class Sync:
    """One pass under way: what is allowed, and what went wrong, by resource uuid.

    `errors` keep a resource from being in step; `faults` are those of its own, that time will not mend. `left_out`
    are members whom the cluster refuses: an operator is told, and the resource is none the worse.
    """

    def __init__(self, site: Site, planned: PlannedSync, judgement: Judgement, report: PassReport) -> None:
        self.site = site
        self.planned = planned
        self.report = report
        self.judgement = judgement
        self.errors: dict[str, SiteAgentError] = {**planned.unread, **planned.refused}
        self.faults: dict[str, SiteAgentError] = dict(planned.refused)
        self.left_out: dict[str, SiteAgentError] = {}
        self.outage: BackendError | None = None
        self._allowed = frozenset(judgement.allowed)
        # What should happen and does not; whom and what the site protects or ignores should not.
        self.withheld = {action for each in judgement.held for action in each.actions} | {
            each.action for each in judgement.refused if each.why not in (Why.PROTECTED, Why.IGNORED)
        }

    def allowed(self, plan: ResourcePlan) -> list[ClusterAction]:
        return [action for action in plan.cluster_actions() if action in self._allowed]

    def done(self, outcomes: Sequence[Outcome]) -> None:
        """Into the report, the journal and the log."""
        self.report.outcomes += outcomes
        journal.record(self.site, MODE, outcomes)
        blocked.note(self.site, outcomes)
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
    for portion in _portions(sync):
        if sync.outage is not None:
            _failed(sync, portion, sync.outage)
        elif time.monotonic() > until_s:
            _failed(sync, portion, PassUnfinished("the time of this pass is used up: the next one goes on"))
        else:
            _change_cluster(sync, portion)
    _tell_waldur(sync, now)
    _conclude(sync)


def _portions(sync: Sync) -> list[Portion]:
    """Everything at once; where that is too much, first what is added and changed, then who leaves, user by user:
    a default account moves to one that somebody has joined, and is left last.
    """
    changed = [plan for plan in sync.planned.plans if sync.allowed(plan)]
    wanted = membership.in_order(action for plan in changed for action in sync.allowed(plan))
    if len(changed) <= ACCOUNTS_AT_ONCE:
        return [_portion(sync, wanted)] if wanted else []
    gone = {a.user for a in wanted if isinstance(a, RemoveMember)}
    of_user: dict[str, list[Action]] = {}
    for action in wanted:
        if membership.is_departure(action, gone):
            of_user.setdefault(getattr(action, "user", ""), []).append(action)
    leaving = {action for actions in of_user.values() for action in actions}
    found = [
        _portion(sync, [action for plan in some for action in sync.allowed(plan) if action not in leaving])
        for some in _sliced(changed, ACCOUNTS_AT_ONCE)
    ]
    for users in _sliced(list(of_user), USERS_AT_ONCE):
        found.append(_portion(sync, [action for user in users for action in of_user[user]]))
    return [portion for portion in found if portion.actions]


def _portion(sync: Sync, actions: Iterable[Action]) -> Portion:
    some = Plan.of(actions).cluster_actions()
    plans = [plan for plan in sync.planned.plans if not set(plan.actions).isdisjoint(some)]
    return Portion(some, tuple(plans))


def _sliced(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _failed(sync: Sync, portion: Portion, error: SiteAgentError) -> None:
    """None of it can be known to have happened, for no fault of the resources."""
    for plan in portion.plans:
        sync.errors.setdefault(plan.case.resource.uuid, error)


def _change_cluster(sync: Sync, portion: Portion) -> None:
    """Apply one portion and read it back: what a second plan still holds has failed."""
    backend = sync.site.backend
    try:
        outcomes = list(backend.apply(portion.actions))
        sync.done(outcomes)
        sync.outage = next((o.error for o in outcomes if isinstance(o.error, BackendUnavailable)), None)
        seen = _completed(backend.observe(READ_BACK), sync.planned)
    except BackendError as error:
        sync.outage = sync.outage or error
        _failed(sync, portion, error)
        return
    failed = {outcome.action: outcome.error for outcome in outcomes if outcome.error}
    for plan, again in zip(portion.plans, sync.planned.again(portion.plans, seen), strict=True):
        _judge(sync, portion, plan, again, failed)


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


def _judge(
    sync: Sync,
    portion: Portion,
    plan: ResourcePlan,
    again: ResourcePlan,
    failed: Mapping[Action, SiteAgentError],
) -> None:
    """What keeps the resource from being in step; an account that is gone meanwhile is nobody's fault, and more than
    the cluster can ever do is asked of nobody.
    """
    uuid = plan.case.resource.uuid
    settled = {action for action, error in failed.items() if isinstance(error, DoneInPart)}
    own = set(plan.actions) - settled
    left = {a for a in again.cluster_actions() if a in portion.actions and a not in settled}
    errors = {a: failed[a] for a in portion.actions if a in own and a in failed}
    lasting = {action: error for action, error in errors.items() if not error.retryable}
    refused = {a: error for a, error in lasting.items() if isinstance(a, AddMember) and _is_fault(error)}
    if again.skipped:
        sync.errors.setdefault(uuid, NotApplied(f"the cluster changed meanwhile: {again.skipped}"))
    elif refused and len(refused) == len(errors) and left <= set(refused) and _is_in_use(plan, again):
        sync.left_out[uuid] = MemberRefused(
            f"left out: {'; '.join(f'{action.user}: {error}' for action, error in refused.items())}"
        )
    elif lasting:
        error = next(iter(lasting.values()))
        sync.errors.setdefault(uuid, error)
        # A state's QoS is the site's word: that it is refused is no fault of the resource.
        own_faults = [
            _told_fault(action, e)
            for action, e in lasting.items()
            if not isinstance(action, SetQos) and _is_fault(e)
        ]
        if own_faults:
            sync.faults.setdefault(uuid, own_faults[0])
    elif errors:
        sync.errors.setdefault(uuid, next(iter(errors.values())))
    elif left:
        first = next(action for action in portion.actions if action in left)
        sync.errors.setdefault(uuid, NotApplied(f"the cluster does not show it: {first.render()}"))


def _told_fault(action: Action, error: SiteAgentError) -> BackendError:
    """A fault for the people of a resource: what was tried and what was said, without the command."""
    words = error.said if isinstance(error, CommandFailed) else str(error)
    return BackendError(f"{action.verb} {action.target()}: {words}")


def _is_in_use(plan: ResourcePlan, again: ResourcePlan) -> bool:
    """Whether any of those who belong in is in: then what is refused is about the others, not about the account."""
    missing = {action.user for action in again.cluster_actions() if isinstance(action, AddMember)}
    return plan.spec is not None and bool(set(plan.spec.members) - missing)


def _is_fault(error: SiteAgentError) -> bool:
    """Whether an error of the cluster is about what was asked, and not about the host or its rights."""
    return isinstance(error, PlanRefused) or (isinstance(error, BackendError) and not error.of_host)


def _tell_waldur(sync: Sync, now: datetime) -> None:
    """Limits and metadata as they are now, then that the resource is in step, or why it is not."""
    wanted = {
        plan.case.resource.uuid: list(_told(sync, plan))
        for plan in sync.planned.plans
        if plan.case.resource.uuid not in sync.errors
    }
    claims = _permitted(sync, sync.planned.claims)
    first = _permitted(sync, [action for several in wanted.values() for action in several])
    failed = sync.send([*claims, *first])
    for uuid, actions in wanted.items():
        if error := next((failed[action] for action in actions if action in failed), None):
            sync.errors[uuid] = error
    for claim in claims:
        error = failed.get(claim)
        result, message = (
            (postponed(error), str(error)) if error else (Result.DONE, "its account is known again")
        )
        sync.report.resources.append(ResourceResult(claim.resource, result, claim.account, message, error))
    closing = [action for plan in sync.planned.plans for action in _closing(sync, plan, now)]
    sync.send(_permitted(sync, closing))


def _told(sync: Sync, plan: ResourcePlan) -> Iterator[WaldurAction]:
    """What Waldur is to show; a QoS or a state only where it has been set."""
    allowed = set(sync.allowed(plan))
    shown = SetQos | BlockSubmission | AllowSubmission
    unset = any(isinstance(action, shown) and action not in allowed for action in plan.actions)
    for action in plan.actions:
        if isinstance(action, WaldurAction) and not (unset and isinstance(action, ReportMetadata)):
            yield action


def _closing(sync: Sync, plan: ResourcePlan, now: datetime) -> Iterator[WaldurAction]:
    uuid = plan.case.resource.uuid
    fault = sync.faults.get(uuid)
    if plan.skipped or (uuid in sync.errors and fault is None):
        return
    waits = any(action in sync.withheld for action in plan.actions)
    for action in membership.closing(plan, sync.planned.rules, now, fault=fault):
        # Of what waits for an approval, or is left out by the mode, nobody can say that it is well.
        if isinstance(action, WaldurAction) and not (waits and isinstance(action, HealResource)):
            yield action


def _permitted(sync: Sync, actions: Sequence[Told]) -> list[Told]:
    """What the site's policy lets us tell Waldur: nothing in a mode that only observes, or in a pause."""
    allowed = policing.judged(sync.site, MODE, actions, sync.planned.snapshot).allowed
    return [action for action in actions if action in allowed]


def _conclude(sync: Sync) -> None:
    """One result for every resource that was not in step, or is not now."""
    for plan in sync.planned.plans:
        result = _result(sync, plan)
        if result is None:
            sync.report.in_step += 1
        else:
            sync.report.resources.append(result)
    for uuid, error in sync.planned.unread.items():
        sync.report.resources.append(ResourceResult(uuid, postponed(error), "", str(error), error))


def _result(sync: Sync, plan: ResourcePlan) -> ResourceResult | None:
    uuid, account = plan.case.resource.uuid, plan.account
    error = sync.errors.get(uuid)
    if error is not None:
        return ResourceResult(uuid, postponed(error), account, str(error), error)
    if plan.skipped:
        return ResourceResult(uuid, Result.WAITING, account, plan.skipped)
    if refused := sync.left_out.get(uuid):
        return ResourceResult(uuid, Result.STUCK, account, str(refused), refused)
    if waiting := next((action for action in plan.actions if action in sync.withheld), None):
        return ResourceResult(uuid, Result.WAITING, account, sync.judgement.reason(waiting))
    if count := len(sync.allowed(plan)):
        return ResourceResult(uuid, Result.DONE, account, f"{count} change{'s' if count > 1 else ''}")
    return None
