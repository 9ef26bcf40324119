# SPDX-License-Identifier: MIT
"""Orders: all that one poll finds are one batch; an order from an event is a batch of one.

observe (`facts`, `naming`) -> plan (`facts`) -> approve, claim the name, change the cluster, read back, complete. An
order is failed for its own fault only (PlanRefused). An outage, a refused command or a lost answer leaves it
as it is, and the next pass goes on. Members who cannot be added never hold an order back: the membership pass
adds them later.

A server of October 2024 (5.8.4) keeps an allocation object behind each resource. Where that is not OK when an update
is approved, the server errs the order a moment later, by itself. So the object is brought to OK before the approval,
and limits are written only when Waldur still wants the update, and has begun it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TypeVar

from agent.config.model import Mode as PassMode
from agent.core.actions import (
    Action,
    ObjectKind,
    Phase,
    SetLimits,
    objects_ended,
    objects_made,
    only,
)
from agent.core.errors import (
    BackendError,
    DoneInPart,
    NotApplied,
    OrderErred,
    SiteAgentError,
    WaldurError,
    WaldurLacks,
)
from agent.core.model import OrderState, OrderType, Part, ResourceState
from agent.core.plans import Outcome, Plan
from agent.core.waldur_actions import (
    ApproveOrder,
    ClaimAccount,
    CompleteOrder,
    FailOrder,
    MarkAllocationOk,
    RejectOrder,
    ReportLimits,
    WaldurAction,
)
from agent.plan.groups import DesiredGroups
from agent.plan.orders import CREATING, OrderPlan
from agent.plan.policy.dependencies import is_join
from agent.plan.policy.gate import Decision
from agent.run.engine import Mode, Portion, Work
from agent.run.gate import Pass
from agent.run.handed_on import AccountsInStep
from agent.run.orders import facts as order_facts
from agent.run.orders import naming
from agent.run.orders.facts import OrderFacts, PlannedOrders
from agent.run.results import OrderResult, Result, postponed
from agent.run.site import Site
from agent.run.usage import last as last_usage
from agent.state.hints import SEEN_OFFERINGS
from agent.waldur import orders, pool, resources
from agent.waldur.client import WaldurClient
from backends.base import LateUsage, Reread, Scope
from backends.failure_propagation import FailurePropagation
from backends.hierarchy import in_order

log = logging.getLogger(__name__)

READ_BACK = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS})
CLAIM_ROUNDS = 3
OrderWork = Work[PlannedOrders]
Sent = TypeVar("Sent", bound=WaldurAction)


ALLOCATION_OK = "OK"


class UpdateNotBegun(SiteAgentError):
    """Waldur has not begun an update that was approved just now: it may still err it by itself."""

    retryable = True


class Orders(Mode[OrderFacts, PlannedOrders]):
    """The orders of a pass."""

    key = PassMode.ORDER_PROCESS

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        # Those that are still open, by uuid; the result of the others is in the report.
        self._open: dict[str, OrderPlan] = {}
        self._is_announced = False
        self._with_allocation: set[str] = set()
        self._approved: frozenset[str] = frozenset()
        # The error of each action, None where it is done; and whether accounts go in another portion, after this one.
        self._outcomes: dict[Action, SiteAgentError | None] = {}
        self._goes_on = False

    def observe(self) -> OrderFacts:
        """Return what Waldur and the cluster say about the orders that no other pass is at work on."""
        run = self.run
        return order_facts.observe(self.site, run.scope.order or None)

    def plan(self, facts: OrderFacts) -> PlannedOrders:
        return order_facts.plan(facts)

    def refine(self, facts: OrderFacts, plan: PlannedOrders) -> OrderFacts | None:
        return order_facts.refine(self.site, self.run.rules, facts, plan)

    def announce(self, work: OrderWork) -> PlannedOrders | None:
        """Approve, fail refused orders, and claim the names. Return the plan without the orders that fell out, None
        when none did.
        """
        if work.plan.facts.is_seen:
            SEEN_OFFERINGS.put(self.site.state_dir, self.site.offering.uuid, {self.site.client.url: True})
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
                # A host that cannot write is found out before anything is reported to Waldur.
                if writing:
                    self.site.backend.prepare()
            except BackendError as error:
                for plan in writing:
                    self._postpone(work, plan, error)
            self._end_refused(work, RejectOrder)
            self._mark_allocations_ok(work)
            self._approve(work)
            self._end_refused(work, FailOrder)
            self._claim(work)
        if len(self._open) == len(work.plan.plans):
            return None
        return work.plan.only(self._open.values())

    def portions(self, work: OrderWork) -> Iterator[Portion]:
        """Yield all that the orders change on the cluster, but for updates that Waldur has ended. Where some end an
        account whose usage is reported, it is counted and reported when no user can use the account any more, and
        before it goes: that is a second portion.
        """
        if not self._open:
            return
        for plan, error in _overtaken(self.site, list(self._open.values()), self._approved):
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
        if isinstance(self.site.usage_backend, LateUsage) and any(
            objects_ended(self._outcomes, ObjectKind.JOBS)
        ):
            time.sleep(self.site.usage_backend.ends_known_after_s)
        # Orders whose resource has usage that cannot be reported to Waldur yet wait.
        ending = {plan.case.resource.uuid: plan for plan in self._open.values() if _ends(plan)}
        cases = [plan.case.resource for plan in ending.values()]
        found = last_usage.submit(work.run, cases, work.plan.snapshot)
        for uuid, error in found.errors.items():
            self._postpone(work, ending[uuid], error)
        for uuid, sentence in found.held.items():
            self._close(work, ending[uuid], Result.WAITING, sentence)
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

    def read_back(self, work: OrderWork, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Postpone the orders of which a second plan still has actions. Raises BackendError."""
        self._outcomes |= {outcome.action: outcome.error for outcome in outcomes}
        if self._goes_on:
            return  # all is read back after the second portion
        carried_out = (*(portion.about or ()), *portion.actions)
        reread = Reread.touched(work.plan.snapshot, carried_out)
        seen = self.site.backend.observe(Scope(READ_BACK, reread=reread))
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
                    "order %s: its limits were not reported to Waldur: %s", uuid, error, extra={"order": uuid}
                )
        self._keep_claims(work)
        failures = self._send(work, CompleteOrder)
        work.send(
            MarkAllocationOk(order=uuid, resource=plan.case.resource.uuid, reason=plan.case.reason)
            for uuid, plan in self._open.items()
            if failures.get(uuid) is None
            and plan.case.order.type is not OrderType.TERMINATE
            and (plan.case.resource.has_allocation or plan.case.resource.uuid in self._with_allocation)
        )
        for plan in list(self._open.values()):
            error = failures.get(plan.case.order.uuid)
            if isinstance(error, OrderErred):
                self._close(work, plan, Result.FAILED, f"{error}{_difference(plan)}", error)
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
        for _, account, user in objects_made(done, ObjectKind.MEMBER):
            if account in joined:
                joined[account].add(user)
        ended = frozenset(thing.account for thing in objects_ended(done, ObjectKind.ACCOUNT))
        members = {account: frozenset(users) for account, users in joined.items()}
        users = frozenset[str]().union(*members.values())
        self.run.leave(AccountsInStep(DesiredGroups(members, ended=ended), users))

    def shows(self, work: OrderWork) -> Sequence[Action]:
        return [action for plan in _going(work) for action in plan.actions]

    def unplanned(self, plan: PlannedOrders) -> Sequence[OrderResult]:
        return plan.facts.results

    def notes(self, plan: PlannedOrders) -> Sequence[str]:
        return [f"order {each.case.order.uuid}: {note}" for each in plan.plans for note in each.notes]

    def _mark_allocations_ok(self, work: OrderWork) -> None:
        """Bring the allocation objects of updates to OK. Updates where that fails are not approved."""
        found = _allocations_to_mark(self.site.client, self._open.values())
        asked = {uuid: action for uuid, action in found.items() if isinstance(action, MarkAllocationOk)}
        failed = {uuid: error for uuid, error in found.items() if isinstance(error, WaldurError)}
        answers = work.send(asked.values())
        failed |= {uuid: answers[action] for uuid, action in asked.items() if action in answers}
        for uuid, error in failed.items():
            words = (
                "not approved, for Waldur would err it: the allocation object of the resource cannot be set to OK: "
                f"{error}"
            )
            why = WaldurError(
                words, method=error.method, path=error.path, status=error.status, detail=error.detail
            )
            self._postpone(work, self._open[uuid], why)

    def _approve(self, work: OrderWork) -> None:
        """Approve, then read again: an approved order may wait for its start date, or have been cancelled since."""
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
        actions of which no later pass will do more (DoneInPart), are only logged.
        """
        if left.refusal:
            first = next((errors[action] for action in plan.actions if action in errors), None)
            changed = NotApplied(f"the cluster has changed since the plan was made: {left.refusal}")
            self._postpone(work, plan, first or changed)
            return
        serious = []
        for action in Plan.of(left.actions).cluster_actions():
            if _ends_another(action, plan) and action not in plan.actions:
                continue  # the policy has left it out, or another order ends it
            error = errors.get(action)
            is_member = is_join(action) and not (error and error.retryable)
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
        if action in blocked and not is_join(action) and not _ends_another(action, plan)
    ]
    return decision.reason(needed[0]) if needed else ""


def allowed_part(plan: OrderPlan, decision: Decision) -> OrderPlan:
    """Return the order without the optional actions that the policy blocks."""
    blocked = decision.blocked
    skipped = [action for action in plan.actions if action in blocked]
    if not skipped:
        return plan
    kept = tuple(action for action in plan.actions if action not in blocked)
    notes = tuple(f"{a.line()} is skipped: {decision.reason(a)}" for a in skipped)
    return replace(plan, actions=kept, notes=(*plan.notes, *notes))


def _ends_another(action: Action, plan: OrderPlan) -> bool:
    """Return whether it deletes an account above the order's own."""
    return any(thing.account != plan.account for thing in objects_ended([action], ObjectKind.ACCOUNT))


def _allocations_to_mark(
    client: WaldurClient, plans: Iterable[OrderPlan]
) -> dict[str, MarkAllocationOk | WaldurError]:
    """Return, by order uuid, what brings the allocation object to OK of each update that is to be approved and would be
    erred; or why that is unknown.
    """
    asked = {
        plan.case.resource.uuid: plan
        for plan in plans
        if plan.case.order.type is OrderType.UPDATE
        and plan.case.order.state is OrderState.PENDING_PROVIDER
        and plan.case.resource.has_allocation
    }
    found: dict[str, MarkAllocationOk | WaldurError] = {}
    for uuid, state in pool.each(asked, lambda uuid: resources.allocation_state(client, uuid)).items():
        order = asked[uuid].case.order.uuid
        if isinstance(state, WaldurLacks):
            continue  # newer servers have no such object, and err no update for it
        if isinstance(state, WaldurError):
            found[order] = state
        elif state != ALLOCATION_OK:
            why = f"it is {state or 'of no known state'}: Waldur would err the update"
            found[order] = MarkAllocationOk(order=order, resource=uuid, reason=why)
    return found


def _overtaken(
    site: Site, plans: Iterable[OrderPlan], approved: Set[str]
) -> Iterable[tuple[OrderPlan, SiteAgentError]]:
    """Read the updates among these orders again, right before limits are written. Yield those that must not be carried
    out now, with the reason; `approved`: uuids of the orders that this pass has approved.
    """
    updates = {p.case.order.uuid: p for p in plans if p.case.order.type is OrderType.UPDATE}
    fresh = {
        plan.case.resource.uuid
        for uuid, plan in updates.items()
        if uuid in approved and plan.case.resource.has_allocation
    }
    # Resources first: what has begun by then cannot be erred any more without the order showing it.
    begun = resources.by_uuid(site.client, fresh)
    now = orders.again(site.client, updates)
    for uuid, plan in updates.items():
        order, resource = now[uuid], begun.get(plan.case.resource.uuid)
        if isinstance(order, WaldurError):
            yield plan, order
        elif order.state is not OrderState.EXECUTING:
            yield plan, orders.moved_on(order)
        elif isinstance(resource, WaldurError):
            yield plan, resource
        elif resource is not None and resource.state is not ResourceState.UPDATING:
            yield plan, UpdateNotBegun("approved, but Waldur has not begun it yet: looked at again soon")


def _difference(plan: OrderPlan) -> str:
    """Return how the cluster and Waldur differ when limits were written for an order that Waldur has ended."""
    written = only(SetLimits, plan.actions)
    if not written:
        return ""
    limits = ", ".join(f"{name}={value}" for action in written for name, value in action.after)
    reported = ", ".join(f"{name}={value}" for name, value in sorted(plan.case.resource.limits.items()))
    return (
        f". Account {plan.account} has the limits of this order on the cluster all the same ({limits}, in its units), "
        f"and Waldur shows {reported or 'none'}: place the update again"
    )
