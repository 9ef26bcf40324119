# SPDX-License-Identifier: MIT
"""Orders: all that one poll finds are one batch; an order from an event is a batch of one.

observe (`facts`, `naming`) -> plan (`planning`) -> approve, claim the name, change the cluster, read back, complete. An
order is failed for its own fault only (PlanRefused). An outage, a refused command or a lost answer leaves it
as it is, and the next pass goes on. Members who cannot be added never hold an order back: the membership pass
adds them later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from agent.config.model import Mode as PassMode
from agent.core.actions import (
    Action,
    Kind,
    Phase,
    things_ended,
    things_made,
)
from agent.core.errors import (
    BackendError,
    DoneInPart,
    NotApplied,
    OrderErred,
    SiteAgentError,
    WaldurError,
)
from agent.core.model import OrderState, OrderType, Part
from agent.core.plans import Outcome, Plan
from agent.core.waldur_actions import (
    ApproveOrder,
    ClaimAccount,
    CompleteOrder,
    FailOrder,
    RejectOrder,
    ReportLimits,
    SettleAllocation,
    WaldurAction,
)
from agent.plan.groups import DesiredGroups
from agent.plan.orders import CREATING, OrderPlan
from agent.plan.policy.dependencies import joins
from agent.plan.policy.gate import Decision
from agent.run.engine import Mode, Portion, Work
from agent.run.gate import Pass
from agent.run.handed_on import AccountsInStep
from agent.run.orders import facts as order_facts
from agent.run.orders import naming, planning, updates
from agent.run.orders.planning import OrderFacts, PlannedOrders
from agent.run.results import OrderResult, Result, postponed
from agent.run.usage import last as last_usage
from agent.waldur import orders, resources
from backends.base import Few, LateUsage, Scope
from backends.failure_propagation import FailurePropagation
from backends.hierarchy import in_order

log = logging.getLogger(__name__)

READ_BACK = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS})
CLAIM_ROUNDS = 3
OrderWork = Work[PlannedOrders]
Sent = TypeVar("Sent", bound=WaldurAction)


class Orders(Mode[OrderFacts, PlannedOrders]):
    """The orders of a pass. `_open`: those that are still open, by uuid; the result of the others is in the report."""

    key = PassMode.ORDER_PROCESS

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self._open: dict[str, OrderPlan] = {}
        self._is_announced = False
        self._with_allocation: set[str] = set()
        self._approved: frozenset[str] = frozenset()
        # The error of each action, None where it is done; and whether accounts go in another portion, after this one.
        self._outcomes: dict[Action, SiteAgentError | None] = {}
        self._goes_on = False

    def observe(self) -> OrderFacts:
        """Return what Waldur and the cluster say about the orders that nobody else is at work on."""
        run = self.run
        return order_facts.observe(self.site, run.scope.order or None, lambda uuid: run.lock(f"order:{uuid}"))

    def plan(self, facts: OrderFacts) -> PlannedOrders:
        return planning.plan(facts)

    def refine(self, facts: OrderFacts, plan: PlannedOrders) -> OrderFacts | None:
        return order_facts.refine(self.site, self.run.rules, facts, plan)

    def announce(self, work: OrderWork) -> PlannedOrders | None:
        """Approve, fail refused orders, and claim the names. Return the plan without the orders that fell out, None
        when none did.
        """
        if not work.plan.plans and not self._is_announced:
            self._is_announced = True
            work.report.orders += work.plan.facts.results
            return None
        self._open = {}
        for plan in work.plan.plans:
            order = plan.case.order
            if reason := wait_reason(plan, work.decision):
                # Logged when it changes, so not here in every pass.
                waits = OrderResult(order.uuid, order.type, Result.WAITING, plan.account, reason)
                work.report.orders.append(waits)
            else:
                self._open[order.uuid] = allowed_part(plan, work.decision)
        if not self._is_announced:
            self._is_announced = True
            work.report.orders += work.plan.facts.results
            for plan in self._open.values():
                for note in plan.notes:
                    log.warning(
                        "order %s (account %s): %s",
                        plan.case.order.uuid,
                        plan.account,
                        note,
                        extra=_ids(plan),
                    )
            writing = [plan for plan in self._open.values() if Plan.of(plan.actions).cluster_actions()]
            try:
                # A host that cannot write is found out before Waldur is told anything.
                if writing:
                    self.site.backend.prepare()
            except BackendError as error:
                for plan in writing:
                    self._postpone(work, plan, error)
            self._end_refused(work, RejectOrder)
            self._settle(work)
            self._approve(work)
            self._end_refused(work, FailOrder)
            self._claim(work)
        if len(self._open) == len(work.plan.plans):
            return None
        return work.plan.only(self._open.values())

    def portions(self, work: OrderWork) -> Iterator[Portion]:
        """Yield all that the orders change on the cluster, but for updates that Waldur has ended. Where some end an
        account whose usage is reported, it is counted and told when nobody can use the account any more, and before it
        goes: that is a second portion.
        """
        if not self._open:
            return
        for plan, error in updates.overtaken(self.site, list(self._open.values()), self._approved):
            self._postpone(work, plan, error)
        wanted = Plan.of(a for plan in self._open.values() for a in plan.actions).cluster_actions()
        if not self.site.usage_backend or not any(map(_ends, self._open.values())):
            if wanted:
                yield Portion(wanted)
            return
        self._goes_on = True
        if first := tuple(action for action in wanted if action.phase < Phase.DELETE):
            yield Portion(first)
        self._goes_on = False
        if isinstance(self.site.usage_backend, LateUsage) and any(things_ended(self._outcomes, Kind.JOBS)):
            time.sleep(self.site.usage_backend.ends_known_after_s)
        self._tell_last_usage(work)
        going = self._going(work, wanted)
        if first or going:
            yield Portion(going, about=first)

    def _going(self, work: OrderWork, wanted: Sequence[Action]) -> tuple[Action, ...]:
        """Return the accounts that may go now: who waits keeps the accounts above as well."""
        left = work.plan.again(self._open.values(), work.plan.snapshot)
        planned = dict.fromkeys(
            action
            for action in Plan.of(action for plan in left for action in plan.actions).cluster_actions()
            if action.phase >= Phase.DELETE and action in wanted
        )
        failures = FailurePropagation()
        for action, error in self._outcomes.items():
            failures.note(Outcome(action, error))
        unmet = []
        parents = {name: each.parent for name, each in work.plan.snapshot.accounts.items()}
        for action in in_order(planned, parents):
            if error := failures.error_for(action):
                unmet.append(Outcome(action, error))
                failures.note(unmet[-1])
        work.note(unmet)
        self._outcomes |= {outcome.action: outcome.error for outcome in unmet}
        return tuple(action for action in planned if action not in self._outcomes)

    def _tell_last_usage(self, work: OrderWork) -> None:
        """Postpone the orders whose resource has usage that Waldur cannot be told yet."""
        ending = {plan.case.resource.uuid: plan for plan in self._open.values() if _ends(plan)}
        cases = [plan.case.resource for plan in ending.values()]
        found = last_usage.tell(work.run, cases, work.plan.snapshot)
        for uuid, error in found.errors.items():
            self._postpone(work, ending[uuid], error)
        for uuid, sentence in found.held.items():
            self._close(work, ending[uuid], Result.WAITING, sentence)

    def read_back(self, work: OrderWork, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Postpone the orders of which a second plan still has actions. Raises BackendError."""
        self._outcomes |= {outcome.action: outcome.error for outcome in outcomes}
        if self._goes_on:
            return  # all is read back after the second portion
        # An account that is to be deleted may have got others below it meanwhile, whose names nobody knows here.
        ends = any(things_ended(portion.actions, Kind.ACCOUNT))
        carried_out = (*(portion.about or ()), *portion.actions)
        few = None if ends else Few.touched(work.plan.snapshot, carried_out)
        seen = self.site.backend.observe(Scope(READ_BACK, few=few))
        # The TRES were not read again: they cannot have changed.
        seen = replace(seen, tres=work.plan.snapshot.tres, complete=seen.complete | {Part.TRES})
        errors = {action: error for action, error in self._outcomes.items() if error}
        plans = list(self._open.values())
        for plan, left in zip(plans, work.plan.again(plans, seen), strict=True):
            self._check(work, plan, left, errors)

    def failed(self, work: OrderWork, portion: Portion, error: SiteAgentError) -> None:
        """Postpone the orders of a portion that cannot have happened, or cannot be read back."""
        concerned = (*(portion.about or ()), *portion.actions)
        for plan in list(self._open.values()):
            if any(action in concerned for action in plan.actions):
                self._postpone(work, plan, error)

    def tell(self, work: OrderWork) -> None:
        """Report the limits, check that Waldur has kept the backend ids, and complete the orders."""
        if not self._open:
            return
        for uuid, error in self._send(work, ReportLimits).items():
            if error is not None:
                log.warning(
                    "order %s: its limits are not shown in Waldur: %s", uuid, error, extra={"order": uuid}
                )
        self._keep_claims(work)
        failures = self._send(work, CompleteOrder)
        work.send(
            SettleAllocation(order=uuid, resource=plan.case.resource.uuid, reason=plan.case.reason)
            for uuid, plan in self._open.items()
            if failures.get(uuid) is None
            and plan.case.order.type is not OrderType.TERMINATE
            and (plan.case.resource.has_allocation or plan.case.resource.uuid in self._with_allocation)
        )
        for plan in list(self._open.values()):
            error = failures.get(plan.case.order.uuid)
            if isinstance(error, OrderErred):
                self._close(work, plan, Result.FAILED, f"{error}{updates.difference(plan)}", error)
            elif error is not None:
                self._postpone(work, plan, error)
            else:
                self._close(work, plan, Result.DONE)
                if plan.case.order.type in CREATING:
                    work.report.resources_made.append(plan.case.resource.uuid)
                if plan.case.nameless:
                    work.report.members_due.append(plan.case.resource.uuid)

    def leave(self, work: OrderWork) -> None:
        """Leave the accounts that were made and ended: their groups and homes need no membership pass."""
        if not (done := work.done):
            return
        if self.run.applies:
            made = {o.account for o in work.report.orders if o.result is Result.DONE and o.type in CREATING}
        else:
            made = {plan.account for plan in _going(work) if plan.case.order.type in CREATING}
        joined: dict[str, set[str]] = {account: set() for account in made}
        for _, account, user in things_made(done, Kind.MEMBER):
            if account in joined:
                joined[account].add(user)
        ended = frozenset(thing.account for thing in things_ended(done, Kind.ACCOUNT))
        members = {account: frozenset(users) for account, users in joined.items()}
        users = frozenset[str]().union(*members.values())
        self.run.leave(AccountsInStep(DesiredGroups(members, ended=ended), users))

    def shows(self, work: OrderWork) -> Sequence[Action]:
        return [action for plan in _going(work) for action in plan.actions]

    def unplanned(self, plan: PlannedOrders) -> Sequence[OrderResult]:
        return plan.facts.results

    def notes(self, plan: PlannedOrders) -> Sequence[str]:
        return [f"order {each.case.order.uuid}: {note}" for each in plan.plans for note in each.notes]

    def _settle(self, work: OrderWork) -> None:
        """Bring the allocation objects of updates to OK. Updates where that fails are not approved."""
        found = updates.to_settle(self.site.client, self._open.values())
        asked = {uuid: action for uuid, action in found.items() if isinstance(action, SettleAllocation)}
        failed = {uuid: error for uuid, error in found.items() if isinstance(error, WaldurError)}
        answers = work.send(asked.values())
        failed |= {uuid: answers[action] for uuid, action in asked.items() if action in answers}
        for uuid, error in failed.items():
            self._postpone(work, self._open[uuid], updates.unsettled(error))

    def _approve(self, work: OrderWork) -> None:
        """Approve, then read again: an approved order may wait for its start date, or have been cancelled meanwhile."""
        failures = self._send(work, ApproveOrder)
        approved = {uuid for uuid, error in failures.items() if error is None}
        for uuid, error in failures.items():
            if error is not None:
                self._postpone(work, self._open[uuid], error)
        self._approved = frozenset(approved)
        for uuid, now in orders.again(self.site.client, approved).items():
            plan = self._open[uuid]
            if isinstance(now, WaldurError):
                self._postpone(work, plan, now)
            elif now.state is OrderState.ERRED:
                self._postpone(work, plan, orders.moved_on(now))
            elif now.state is not OrderState.EXECUTING:
                self._close(work, plan, Result.WAITING, "approved, but Waldur does not want it executed yet")

    def _end_refused(self, work: OrderWork, kind: type[FailOrder | RejectOrder]) -> None:
        for uuid, error in self._send(work, kind).items():
            plan = self._open[uuid]
            if error is None:
                self._close(work, plan, Result.FAILED, plan.refusal)
            else:
                self._postpone(work, plan, error)

    def _claim(self, work: OrderWork) -> None:
        """Write the account names to Waldur before the accounts exist. Orders whose name is contested wait."""
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
        contests = naming.contested(self.site, list(self._open.values()))
        kept = work.send(contest.release for contest in contests if contest.release is not None)
        for contest in contests:
            unreleased = kept.get(contest.release) if contest.release is not None else None
            self._postpone(work, contest.plan, unreleased or contest.error)

    def _check(
        self, work: OrderWork, plan: OrderPlan, left: OrderPlan, errors: Mapping[Action, SiteAgentError]
    ) -> None:
        """Postpone the order where the second plan still has an action of it. Members whom the cluster refuses, and
        actions that it did in part for good (DoneInPart), are only logged.
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
                log.warning(
                    "order %s: %s failed: %s",
                    plan.case.order.uuid,
                    action.render(),
                    reason,
                    extra=_ids(plan),
                )
            else:
                serious.append(action)
        if serious:
            own = next((errors[action] for action in serious if action in errors), None)
            earlier = next((errors[action] for action in plan.actions if action in errors), None)
            unseen = NotApplied(f"the cluster does not show it: {serious[0].render()}")
            self._postpone(work, plan, own or earlier or unseen)

    def _keep_claims(self, work: OrderWork) -> None:
        """Read the backend ids back, and write them again where a server lost one right after the approval."""
        lost: list[OrderPlan] = []
        for _ in range(CLAIM_ROUNDS):
            lost = []
            claimed = {p.case.resource.uuid: p for p in self._open.values() if _of(p, ClaimAccount)}
            for uuid, seen in resources.by_uuid(self.site.client, claimed).items():
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
                log.warning(
                    "Waldur lost the backend id %s of %s: written again", plan.account, uuid, extra=_ids(plan)
                )
            self._claim(work)
        for plan in lost:
            self._postpone(
                work, plan, NotApplied(f"Waldur does not keep the backend id {plan.account} of its resource")
            )

    def _send(self, work: OrderWork, kind: type[Sent]) -> dict[str, WaldurError | None]:
        """Send one kind of action for all open orders. Return the error, or None, by order uuid."""
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
            extra={**_ids(plan), "result": str(result)},
        )


def _going(work: OrderWork) -> list[OrderPlan]:
    """Return what the policy lets through of the orders that need not wait."""
    plans, decision = work.plan.plans, work.decision
    return [allowed_part(plan, decision) for plan in plans if not wait_reason(plan, decision)]


def _ids(plan: OrderPlan) -> dict[str, str]:
    """Return what a line of the log is found by."""
    return {
        "order": plan.case.order.uuid,
        "resource": plan.case.order.resource_uuid,
        "account": plan.account or "",
    }


def _ends(plan: OrderPlan) -> bool:
    """Return whether the order ends a resource, in this pass if all goes well."""
    return plan.case.order.type is OrderType.TERMINATE and _of(plan, CompleteOrder) is not None


def _of(plan: OrderPlan, kind: type[Sent]) -> Sent | None:
    return next((action for action in plan.actions if isinstance(action, kind)), None)


def wait_reason(plan: OrderPlan, decision: Decision) -> str:
    """Return why an order waits, empty when it may go on."""
    blocked = decision.blocked
    # An order can do without a member, and without ending the project's account.
    needed = [
        action
        for action in plan.actions
        if action in blocked and not joins(action) and not _ends_another(action, plan)
    ]
    return decision.reason(needed[0]) if needed else ""


def allowed_part(plan: OrderPlan, decision: Decision) -> OrderPlan:
    """Return the order without the optional actions that the policy blocks."""
    blocked = decision.blocked
    left_out = [action for action in plan.actions if action in blocked]
    if not left_out:
        return plan
    kept = tuple(action for action in plan.actions if action not in blocked)
    notes = tuple(f"{a.line()} is left out: {decision.reason(a)}" for a in left_out)
    return replace(plan, actions=kept, notes=(*plan.notes, *notes))


def _ends_another(action: Action, plan: OrderPlan) -> bool:
    """Return whether it deletes an account above the order's own."""
    return any(thing.account != plan.account for thing in things_ended([action], Kind.ACCOUNT))
