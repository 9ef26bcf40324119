# SPDX-License-Identifier: MIT
"""Carrying out the plans of an order pass: approve, claim the names, change the cluster, read back, finish.

An order is failed for its own fault only (PlanRefused). An outage, a refused command or a lost answer leaves it
as it is, and the next pass goes on. Members who cannot be added never hold an order back: the membership pass
adds them later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from agent.config.model import Mode
from agent.core.actions import Action, AddMember, ClusterAction, DeleteAccount
from agent.core.errors import BackendError, DoneInPart, NotApplied, SiteAgentError, WaldurError
from agent.core.model import Order, OrderState, OrderType, Part, Snapshot
from agent.core.plans import Outcome, Plan
from agent.core.waldur_actions import ApproveOrder, ClaimAccount, CompleteOrder, FailOrder, ReportLimits
from agent.plan.orders import OrderPlan
from agent.plan.policy.gate import Judgement
from agent.run.orders import decision as order_policy
from agent.run.orders import naming
from agent.run.orders.planning import PlannedPass
from agent.run.results import OrderResult, PassReport, Result, postponed
from agent.run.site import Site
from agent.state import journal
from agent.waldur import orders, pool, resources
from backends.base import Scope

Sent = TypeVar("Sent", bound=Action)

log = logging.getLogger(__name__)

READ_BACK = Scope(parts=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
CLAIM_ROUNDS = 3


class Progress:
    """Plans that are still under way, and the report that takes those which are not."""

    def __init__(self, site: Site, plans: Sequence[OrderPlan], report: PassReport) -> None:
        self.site = site
        self.report = report
        self.with_allocation: set[str] = set()
        self._open = {plan.case.order.uuid: plan for plan in plans}

    @property
    def open(self) -> list[OrderPlan]:
        return list(self._open.values())

    def close(
        self, plan: OrderPlan, result: Result, message: str = "", error: SiteAgentError | None = None
    ) -> None:
        order = plan.case.order
        self._open.pop(order.uuid, None)
        self.report.orders.append(OrderResult(order.uuid, order.type, result, plan.account, message, error))
        level = logging.INFO if result in (Result.DONE, Result.WAITING) else logging.WARNING
        level = logging.ERROR if result is Result.STUCK else level
        log.log(
            level,
            "order %s (%s, resource %s, account %s): %s%s",
            order.uuid,
            order.type,
            order.resource_name or order.resource_uuid,
            plan.account or "none",
            result,
            f": {message}" if message else "",
        )

    def withhold(self, planned: PlannedPass, *, whole: bool) -> None:
        """Take out what the policy holds or refuses. It is told when it changes, so not here in every pass."""
        judgement = order_policy.policed(self.site, planned, whole=whole)
        self.report.held, self.report.refused = judgement.held, judgement.refused
        self._withhold(judgement)

    def plan_again(self, planned: PlannedPass) -> None:
        """New plans for the orders under way: the others are not carried out, and nobody may build on them."""
        self._open = {plan.case.order.uuid: plan for plan in planned.again(self.open, planned.snapshot)}
        self._withhold(order_policy.permitted(self.site, replace(planned, plans=self.open)))

    def _withhold(self, judgement: Judgement) -> None:
        for plan in self.open:
            order = plan.case.order
            if reason := order_policy.wait_reason(plan, judgement):
                del self._open[order.uuid]
                self.report.orders.append(
                    OrderResult(order.uuid, order.type, Result.WAITING, plan.account, reason)
                )
            else:
                self._open[order.uuid] = order_policy.allowed_part(plan, judgement)

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Into the report, and into the journal at once: a later step may be cut off."""
        self.report.outcomes += outcomes
        journal.record(self.site, Mode.ORDER_PROCESS, outcomes)

    def postpone(self, plan: OrderPlan, error: SiteAgentError) -> None:
        self.close(plan, postponed(error), str(error), error)

    def send(self, kind: type[Sent], call: Callable[[Sent], None]) -> dict[str, WaldurError | None]:
        """Send the requests of one kind of action for all open plans; failures by order uuid."""
        wanted = {uuid: action for uuid, plan in self._open.items() if (action := _of(plan, kind))}
        answers = pool.each(wanted, lambda uuid: call(wanted[uuid]))
        failures = {uuid: a if isinstance(a, WaldurError) else None for uuid, a in answers.items()}
        self.note([Outcome(wanted[uuid], error) for uuid, error in failures.items()])
        return failures


def apply(site: Site, planned: PlannedPass, report: PassReport, *, whole: bool = True) -> None:
    """All phases for all orders; what fails closes its order in the report, the others go on.

    `whole`: these are all orders of the offering.
    """
    progress = Progress(site, planned.plans, report)
    progress.withhold(planned, whole=whole and not planned.results)
    for plan in progress.open:
        for note in plan.notes:
            log.warning("order %s (account %s): %s", plan.case.order.uuid, plan.account, note)
    _prepare(progress)
    _approve(progress)
    _fail(progress)
    _claim(progress)
    _change_cluster(progress, planned)
    _report_limits(progress)
    _keep_claims(progress)
    _complete(progress)


def _prepare(progress: Progress) -> None:
    """A host that could not even begin to write is found out before Waldur is told anything."""
    writing = [plan for plan in progress.open if any(isinstance(a, ClusterAction) for a in plan.actions)]
    if not writing:
        return
    try:
        progress.site.backend.prepare()
    except BackendError as error:
        for plan in writing:
            progress.postpone(plan, error)


def _approve(progress: Progress) -> None:
    """Approve, then look: an approved order may wait for its start date, or have been cancelled meanwhile."""
    client = progress.site.client
    failures = progress.send(ApproveOrder, lambda action: orders.approve(client, action.order))
    approved = {uuid for uuid, error in failures.items() if error is None}
    for plan in progress.open:
        if error := failures.get(plan.case.order.uuid):
            progress.postpone(plan, error)
    if not approved:
        return
    try:
        executing = {order.uuid for order in _now(progress, approved) if order.state is OrderState.EXECUTING}
    except WaldurError as error:
        for plan in progress.open:
            progress.postpone(plan, error)
        return
    for plan in progress.open:
        if plan.case.order.uuid in approved - executing:
            progress.close(plan, Result.WAITING, "approved, but Waldur does not want it executed yet")


def _now(progress: Progress, approved: Iterable[str]) -> list[Order]:
    """The approved orders as they are now: one listing for many, single requests for few."""
    uuids = sorted(approved)
    if len(uuids) >= resources.LIST_FROM:
        return orders.actionable(progress.site.client, (OrderState.EXECUTING,))
    return [orders.get(progress.site.client, uuid) for uuid in uuids]


def _fail(progress: Progress) -> None:
    client = progress.site.client
    failures = progress.send(FailOrder, lambda action: orders.fail(client, action.order, action.message))
    for plan in progress.open:
        uuid = plan.case.order.uuid
        if uuid in failures:
            error = failures[uuid]
            if error is None:
                progress.close(plan, Result.FAILED, plan.refusal)
            else:
                progress.postpone(plan, error)


def _fail_one(progress: Progress, plan: OrderPlan, message: str) -> None:
    action = FailOrder(order=plan.case.order.uuid, message=message, reason=plan.case.reason)
    try:
        orders.fail(progress.site.client, action.order, message)
    except WaldurError as error:
        progress.note([Outcome(action, error)])
        progress.postpone(plan, error)
    else:
        progress.note([Outcome(action)])
        progress.close(plan, Result.FAILED, message)


def _claim(progress: Progress) -> None:
    """Write the names to Waldur before the accounts exist."""
    client = progress.site.client
    failures = progress.send(ClaimAccount, lambda a: resources.set_backend_id(client, a.resource, a.account))
    for plan in progress.open:
        error = failures.get(plan.case.order.uuid)
        if error is None:
            continue
        if error.status == 400 and error.detail.startswith("backend_id:"):
            # The offering's own rules for backend ids refuse this name: no later pass will find another one.
            _fail_one(progress, plan, f"Waldur refuses the account name {plan.account}: {error.detail}")
        else:
            progress.postpone(plan, error)
    for plan, contest in naming.contested(progress.site, progress.open):
        progress.postpone(plan, contest)


def _change_cluster(progress: Progress, planned: PlannedPass) -> None:
    """Apply all cluster actions as one batch and read back: what a second plan still holds has failed."""
    progress.plan_again(planned)
    wanted = Plan.of(a for plan in progress.open for a in plan.actions).cluster_actions()
    if not wanted:
        return
    backend = progress.site.backend
    try:
        outcomes = list(backend.apply(wanted))
        progress.note(outcomes)
        seen = backend.observe(READ_BACK)
    except BackendError as error:
        for plan in progress.open:
            if any(action in wanted for action in plan.actions):
                progress.postpone(plan, error)
        return
    for outcome in outcomes:
        if outcome.done:
            log.info("%s", outcome.action.render())
        else:
            log.warning("failed: %s: %s", outcome.action.render(), outcome.error)
    errors = {outcome.action: outcome.error for outcome in outcomes if outcome.error}
    for plan, left in zip(
        progress.open, planned.again(progress.open, _with_tres(seen, planned)), strict=True
    ):
        _judge(progress, plan, left, errors)


def _judge(
    progress: Progress, plan: OrderPlan, left: OrderPlan, errors: Mapping[Action, SiteAgentError]
) -> None:
    """What the second plan still holds decides. A member whom the cluster refuses, and what it did as far as it ever
    can, are notes; all else that is missing keeps the order open.
    """
    if left.refusal:
        first = next((errors[action] for action in plan.actions if action in errors), None)
        progress.postpone(plan, first or NotApplied(f"the cluster changed meanwhile: {left.refusal}"))
        return
    serious = []
    for action in Plan.of(left.actions).cluster_actions():
        if (
            isinstance(action, DeleteAccount)
            and action.account != plan.account
            and action not in plan.actions
        ):
            continue  # the project's account: the policy has left it out, or another order takes it along
        error = errors.get(action)
        is_member = isinstance(action, AddMember) and not (error and error.retryable)
        if is_member or isinstance(error, DoneInPart):
            reason = error or "the cluster does not show it"
            log.warning("order %s: %s failed: %s", plan.case.order.uuid, action.render(), reason)
        else:
            serious.append(action)
    if serious:
        own = next((errors[action] for action in serious if action in errors), None)
        earlier = next((errors[action] for action in plan.actions if action in errors), None)
        unseen = NotApplied(f"the cluster does not show it: {serious[0].render()}")
        progress.postpone(plan, own or earlier or unseen)


def _report_limits(progress: Progress) -> None:
    client = progress.site.client
    failures = progress.send(ReportLimits, lambda a: resources.set_limits(client, a.resource, dict(a.limits)))
    for uuid, error in failures.items():
        if error is not None:
            log.warning("order %s: its limits are not shown in Waldur: %s", uuid, error)


def _keep_claims(progress: Progress) -> None:
    """Read the names back: a server may lose a backend id right after the approval; then it is written again."""
    for _ in range(CLAIM_ROUNDS):
        lost = []
        claimed = {plan.case.resource.uuid: plan for plan in progress.open if _of(plan, ClaimAccount)}
        for uuid, seen in resources.by_uuid(progress.site.client, claimed).items():
            plan = claimed[uuid]
            if isinstance(seen, WaldurError):
                progress.postpone(plan, seen)
                continue
            if seen.has_allocation:
                progress.with_allocation.add(uuid)
            if seen.backend_id != plan.account:
                lost.append(plan)
        if not lost:
            return
        for plan in lost:
            log.warning(
                "Waldur lost the backend id %s of %s: written again", plan.account, plan.case.resource.uuid
            )
        _claim(progress)
    for plan in lost:
        progress.postpone(
            plan, NotApplied(f"Waldur does not keep the backend id {plan.account} of its resource")
        )


def _complete(progress: Progress) -> None:
    client = progress.site.client
    failures = progress.send(CompleteOrder, lambda action: orders.complete(client, action.order))
    for plan in progress.open:
        error = failures.get(plan.case.order.uuid)
        if error is None:
            _settle_allocation(progress, plan)
            progress.close(plan, Result.DONE)
        else:
            progress.postpone(plan, error)


def _settle_allocation(progress: Progress, plan: OrderPlan) -> None:
    resource = plan.case.resource
    ended = plan.case.order.type is OrderType.TERMINATE
    if ended or not (resource.has_allocation or resource.uuid in progress.with_allocation):
        return
    try:
        resources.settle_allocation(progress.site.client, resource.uuid)
    except WaldurError as error:
        log.warning("the allocation object of resource %s is not settled: %s", resource.uuid, error)


def _of(plan: OrderPlan, kind: type[Sent]) -> Sent | None:
    return next((action for action in plan.actions if isinstance(action, kind)), None)


def _with_tres(seen: Snapshot, planned: PlannedPass) -> Snapshot:
    """The second look leaves out the TRES, which cannot have changed."""
    return replace(seen, tres=planned.snapshot.tres, complete=seen.complete | {Part.TRES})
