# SPDX-License-Identifier: MIT
"""What each order of a pass goes through: approve, claim the name, change the cluster, read back, finish.

An order is failed for its own fault only (PlanRefused). An outage, a refused command or a lost answer leaves it
as it is, and the next pass goes on. Members who cannot be added never hold an order back: the membership pass
adds them later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from agent.core.actions import Action, Kind
from agent.core.errors import BackendError, DoneInPart, NotApplied, SiteAgentError, WaldurError
from agent.core.model import OrderState, OrderType, Part
from agent.core.plans import Outcome, Plan
from agent.core.waldur_actions import (
    ApproveOrder,
    ClaimAccount,
    CompleteOrder,
    FailOrder,
    ReportLimits,
    WaldurAction,
)
from agent.plan.orders import OrderPlan
from agent.plan.policy.dependencies import joins
from agent.plan.policy.gate import Decision
from agent.run.engine import Portion, Request, Work
from agent.run.orders import naming
from agent.run.orders.planning import PlannedOrders
from agent.run.results import OrderResult, Result, postponed
from agent.run.site import Site
from agent.waldur import orders, resources
from backends.base import Scope

log = logging.getLogger(__name__)

READ_BACK = Scope(parts=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
CLAIM_ROUNDS = 3
REQUESTS: Mapping[type[WaldurAction], Request] = {
    ApproveOrder: lambda client, a: orders.approve(client, a.order),
    FailOrder: lambda client, a: orders.fail(client, a.order, a.message),
    ClaimAccount: lambda client, a: resources.set_backend_id(client, a.resource, a.account),
    ReportLimits: lambda client, a: resources.set_limits(client, a.resource, dict(a.limits)),
    CompleteOrder: lambda client, a: orders.complete(client, a.order),
}

OrderWork = Work[PlannedOrders]
Sent = TypeVar("Sent", bound=WaldurAction)


class Progress:
    """The orders that are still under way, by uuid; those that are not stand in the report."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._open: dict[str, OrderPlan] = {}
        self._is_announced = False
        self._with_allocation: set[str] = set()

    def announce(self, work: OrderWork) -> PlannedOrders | None:
        """Approve, fail what is wrong in itself, and claim the names; the plan without the orders that fell out."""
        self._take_up(work)
        if not self._is_announced:
            self._is_announced = True
            work.report.orders += work.plan.facts.results
            for plan in self._open.values():
                for note in plan.notes:
                    log.warning("order %s (account %s): %s", plan.case.order.uuid, plan.account, note)
            self._prepare(work)
            self._approve(work)
            self._fail(work)
            self._claim(work)
        if len(self._open) == len(work.plan.plans):
            return None
        return work.plan.only(self._open.values())

    def portions(self, work: OrderWork) -> Iterator[Portion]:
        """All that the orders change on the cluster, at once."""
        wanted = Plan.of(a for plan in self._open.values() for a in plan.actions).cluster_actions()
        if wanted:
            yield Portion(wanted)

    def read_back(self, work: OrderWork, _portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """What a second plan still holds has failed. Raises BackendError where the cluster cannot be read."""
        seen = self._site.backend.observe(READ_BACK)
        # The second look leaves out the TRES, which cannot have changed.
        seen = replace(seen, tres=work.plan.snapshot.tres, complete=seen.complete | {Part.TRES})
        errors = {outcome.action: outcome.error for outcome in outcomes if outcome.error}
        plans = list(self._open.values())
        for plan, left in zip(plans, work.plan.again(plans, seen), strict=True):
            self._judge(work, plan, left, errors)

    def failed(self, work: OrderWork, portion: Portion, error: SiteAgentError) -> None:
        """Nothing of the portion can have happened, or nobody can see it: its orders wait."""
        for plan in list(self._open.values()):
            if any(action in portion.actions for action in plan.actions):
                self._postpone(work, plan, error)

    def tell(self, work: OrderWork) -> None:
        """Show the limits, see to it that Waldur has kept the names, and complete."""
        for uuid, error in self._send(work, ReportLimits).items():
            if error is not None:
                log.warning("order %s: its limits are not shown in Waldur: %s", uuid, error)
        self._keep_claims(work)
        failures = self._send(work, CompleteOrder)
        for plan in list(self._open.values()):
            error = failures.get(plan.case.order.uuid)
            if error is None:
                self._settle_allocation(plan)
                self._close(work, plan, Result.DONE)
            else:
                self._postpone(work, plan, error)

    def _take_up(self, work: OrderWork) -> None:
        """Leave out what the policy holds or refuses. It is told when it changes, so not here in every pass."""
        planned = {plan.case.order.uuid: plan for plan in work.plan.plans}
        self._open = {}
        for uuid, plan in planned.items():
            if reason := wait_reason(plan, work.decision):
                order = plan.case.order
                work.report.orders.append(
                    OrderResult(order.uuid, order.type, Result.WAITING, plan.account, reason)
                )
            else:
                self._open[uuid] = allowed_part(plan, work.decision)

    def _prepare(self, work: OrderWork) -> None:
        """A host that could not even begin to write is found out before Waldur is told anything."""
        writing = [plan for plan in self._open.values() if Plan.of(plan.actions).cluster_actions()]
        if not writing:
            return
        try:
            self._site.backend.prepare()
        except BackendError as error:
            for plan in writing:
                self._postpone(work, plan, error)

    def _approve(self, work: OrderWork) -> None:
        """Approve, then look: an approved order may wait for its start date, or have been cancelled meanwhile."""
        failures = self._send(work, ApproveOrder)
        approved = {uuid for uuid, error in failures.items() if error is None}
        for uuid, error in failures.items():
            if error is not None:
                self._postpone(work, self._open[uuid], error)
        if not approved:
            return
        client = self._site.client
        try:
            # One listing for many, single requests for few.
            if len(approved) >= resources.LIST_FROM:
                now = orders.actionable(client, (OrderState.EXECUTING,))
            else:
                now = [orders.get(client, uuid) for uuid in sorted(approved)]
        except WaldurError as error:
            for plan in list(self._open.values()):
                self._postpone(work, plan, error)
            return
        executing = {order.uuid for order in now if order.state is OrderState.EXECUTING}
        for uuid in approved - executing:
            plan = self._open[uuid]
            self._close(work, plan, Result.WAITING, "approved, but Waldur does not want it executed yet")

    def _fail(self, work: OrderWork) -> None:
        for uuid, error in self._send(work, FailOrder).items():
            plan = self._open[uuid]
            if error is None:
                self._close(work, plan, Result.FAILED, plan.refusal)
            else:
                self._postpone(work, plan, error)

    def _claim(self, work: OrderWork) -> None:
        """Write the names to Waldur before the accounts exist; who shares a name with another waits."""
        for uuid, error in self._send(work, ClaimAccount).items():
            if error is None:
                continue
            plan = self._open[uuid]
            if error.status != 400 or not error.detail.startswith("backend_id:"):
                self._postpone(work, plan, error)
                continue
            # The offering's own rules for backend ids refuse this name: no later pass will find another one.
            message = f"Waldur refuses the account name {plan.account}: {error.detail}"
            fail = FailOrder(order=uuid, message=message, reason=plan.case.reason)
            if refused := work.send([fail]).get(fail):
                self._postpone(work, plan, refused)
            else:
                self._close(work, plan, Result.FAILED, message)
        for plan, contest in naming.contested(self._site, list(self._open.values())):
            self._postpone(work, plan, contest)

    def _judge(
        self, work: OrderWork, plan: OrderPlan, left: OrderPlan, errors: Mapping[Action, SiteAgentError]
    ) -> None:
        """What the second plan still holds decides. A member whom the cluster refuses, and what it did as far as it
        ever can, are notes; all else that is missing keeps the order open.
        """
        if left.refusal:
            first = next((errors[action] for action in plan.actions if action in errors), None)
            changed = NotApplied(f"the cluster changed meanwhile: {left.refusal}")
            self._postpone(work, plan, first or changed)
            return
        serious = []
        for action in Plan.of(left.actions).cluster_actions():
            if _ends_another(action, plan) and action not in plan.actions:
                continue  # the policy has left it out, or another order takes it along
            error = errors.get(action)
            is_member = joins(action) and not (error and error.retryable)
            if is_member or isinstance(error, DoneInPart):
                reason = error or "the cluster does not show it"
                log.warning("order %s: %s failed: %s", plan.case.order.uuid, action.render(), reason)
            else:
                serious.append(action)
        if serious:
            own = next((errors[action] for action in serious if action in errors), None)
            earlier = next((errors[action] for action in plan.actions if action in errors), None)
            unseen = NotApplied(f"the cluster does not show it: {serious[0].render()}")
            self._postpone(work, plan, own or earlier or unseen)

    def _keep_claims(self, work: OrderWork) -> None:
        """Read the names back: a server may lose a backend id right after the approval; then it is written again."""
        lost: list[OrderPlan] = []
        for _ in range(CLAIM_ROUNDS):
            lost = []
            claimed = {p.case.resource.uuid: p for p in self._open.values() if _of(p, ClaimAccount)}
            for uuid, seen in resources.by_uuid(self._site.client, claimed).items():
                plan = claimed[uuid]
                if isinstance(seen, WaldurError):
                    self._postpone(work, plan, seen)
                    continue
                if seen.has_allocation:
                    self._with_allocation.add(uuid)
                if seen.backend_id != plan.account:
                    lost.append(plan)
            if not lost:
                return
            for plan in lost:
                uuid = plan.case.resource.uuid
                log.warning("Waldur lost the backend id %s of %s: written again", plan.account, uuid)
            self._claim(work)
        for plan in lost:
            self._postpone(
                work, plan, NotApplied(f"Waldur does not keep the backend id {plan.account} of its resource")
            )

    def _settle_allocation(self, plan: OrderPlan) -> None:
        """Set the second object that a server of 2024 keeps behind a resource."""
        resource = plan.case.resource
        ended = plan.case.order.type is OrderType.TERMINATE
        if ended or not (resource.has_allocation or resource.uuid in self._with_allocation):
            return
        try:
            resources.settle_allocation(self._site.client, resource.uuid)
        except WaldurError as error:
            log.warning("the allocation object of resource %s is not settled: %s", resource.uuid, error)

    def _send(self, work: OrderWork, kind: type[Sent]) -> dict[str, WaldurError | None]:
        """Send the requests of one kind of action for all open orders; failures by order uuid."""
        wanted = {uuid: action for uuid, plan in self._open.items() if (action := _of(plan, kind))}
        failed = work.send(wanted.values())
        return {uuid: failed.get(action) for uuid, action in wanted.items()}

    def _postpone(self, work: OrderWork, plan: OrderPlan, error: SiteAgentError) -> None:
        self._close(work, plan, postponed(error), str(error), error)

    def _close(
        self,
        work: OrderWork,
        plan: OrderPlan,
        result: Result,
        message: str = "",
        error: SiteAgentError | None = None,
    ) -> None:
        order = plan.case.order
        self._open.pop(order.uuid, None)
        work.report.orders.append(OrderResult(order.uuid, order.type, result, plan.account, message, error))
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


def _of(plan: OrderPlan, kind: type[Sent]) -> Sent | None:
    return next((action for action in plan.actions if isinstance(action, kind)), None)


def wait_reason(plan: OrderPlan, decision: Decision) -> str:
    """Why an order waits, empty when it may go on."""
    blocked = decision.blocked
    needed = [action for action in plan.actions if action in blocked and not _is_spare(action, plan)]
    return decision.reason(needed[0]) if needed else ""


def allowed_part(plan: OrderPlan, decision: Decision) -> OrderPlan:
    """The order without the actions that it can do without and must not carry out."""
    blocked = decision.blocked
    left_out = [action for action in plan.actions if action in blocked]
    if not left_out:
        return plan
    kept = tuple(action for action in plan.actions if action not in blocked)
    notes = tuple(f"{a.line()} is left out: {decision.reason(a)}" for a in left_out)
    return replace(plan, actions=kept, notes=(*plan.notes, *notes))


def _is_spare(action: Action, plan: OrderPlan) -> bool:
    """What an order can do without."""
    return joins(action) or _ends_another(action, plan)


def _ends_another(action: Action, plan: OrderPlan) -> bool:
    """Whether it deletes an account above the order's own."""
    ended = action.things(action.ends)
    return any(thing.kind is Kind.ACCOUNT and thing.account != plan.account for thing in ended)
