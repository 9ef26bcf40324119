# SPDX-License-Identifier: MIT
"""What one pass of each mode over an offering is made of: the loop of the mode, and what goes with the accounts.

Called by the tasks, the commands and the tests; the modes themselves are strangers to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agent.config.model import Mode
from agent.core.actions import AddMember, ClusterAction, DeleteAccount, only
from agent.core.model import OfferingUser, Snapshot
from agent.plan.groups import DesiredGroups
from agent.plan.membership import ResourcePlan
from agent.plan.orders import CREATING
from agent.run import engine, gate
from agent.run.gate import UNBOUNDED_S, Pass
from agent.run.membership import mode as membership
from agent.run.membership.facts import MembershipFacts, Reach
from agent.run.membership.mode import Synced
from agent.run.orders import mode as orders
from agent.run.people import mode as people
from agent.run.periodic import mode as periodic
from agent.run.results import PassReport, Result
from agent.run.site import Site
from agent.run.usage import mode as usage

Lock = Callable[[str], bool]


def process_orders(site: Site, *, order_uuid: str | None = None, lock: Lock = lambda _: True) -> PassReport:
    """One pass over the offering's orders, or over one order. What was held of periodic limits goes on with a pass over
    all. `lock` takes names such as `order:UUID`; what has its lock taken is left to its holder.
    """
    with engine.passing(site, Mode.ORDER_PROCESS, subject=order_uuid or "") as run:
        orders.reconcile(run, order_uuid=order_uuid, lock=lambda uuid: lock(f"order:{uuid}"))
        provide_for_orders(run)
        if order_uuid is None:
            resume_periodic_limits(run, lock)
    return run.report


def sync_members(site: Site, *, reach: Reach = Reach(), seconds: float = UNBOUNDED_S) -> PassReport:
    """One pass over the offering, or over one resource or project. After `seconds` no new portion is begun."""
    subject = reach.resource_uuid or reach.project_uuid
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, subject=subject, seconds=seconds) as run:
        synced = membership.reconcile(run, reach, lambda facts, snapshot: name_people(run, facts, snapshot))
        provide_for_members(run, synced)
    return run.report


def name_people(run: Pass, facts: MembershipFacts, snapshot: Snapshot) -> Sequence[OfferingUser]:
    """The offering's users with the names that people get now."""
    if not gate.may_tell(run.rules):
        return facts.users
    return people.name_people(run, facts.users, facts.offering, snapshot)


def provide_for_orders(run: Pass) -> None:
    """Groups and homes of the accounts that orders made and ended, at once and not in five minutes."""
    report = run.report
    done = [outcome.action for outcome in report.outcomes if outcome.done]
    if not done or not gate.may_tell(run.rules):
        return
    made = (o.account for o in report.orders if o.result is Result.DONE and o.type in CREATING)
    joined: dict[str, set[str]] = {account: set() for account in made}
    for action in only(AddMember, done):
        if action.account in joined:
            joined[action.account].add(action.user)
    ended = frozenset(action.account for action in only(DeleteAccount, done))
    desired = DesiredGroups({account: frozenset(users) for account, users in joined.items()}, ended=ended)
    people.provide(run, desired, (user for users in joined.values() for user in users), is_whole=False)


def resume_periodic_limits(run: Pass, lock: Lock) -> None:
    """Messages of periodic policies that were held, where somebody has let them go."""
    report = run.report
    for resumed in periodic.resume(run.site, run.rules, lambda uuid: lock(f"periodic_limits:{uuid}")):
        report.outcomes += resumed.outcomes
        report.held += resumed.held
        if resumed.error is not None:
            report.problems.append(f"periodic limits: {resumed.error}")
            report.later = report.later or resumed.retryable_error


def provide_for_members(run: Pass, synced: Synced) -> None:
    """Groups and homes of the accounts that a membership pass looked at."""
    if not gate.may_tell(run.rules):
        return
    desired = desired_groups(synced)
    users = (user for members in desired.members.values() for user in members)
    people.provide(run, desired, users, is_whole=synced.plan.is_whole)


def desired_groups(synced: Synced) -> DesiredGroups:
    """The groups as the accounts that are in step want them."""
    in_step = [
        plan for plan in synced.plan.plans if plan.spec and plan.case.resource.uuid not in synced.errors
    ]
    members: dict[str, frozenset[str]] = {}
    for plan in in_step:
        own = plan.spec.members if plan.spec else ()
        members[plan.account] = members.get(plan.account, frozenset()).union(own)
    held = {a.account for p in synced.decision.held for a in p.actions if isinstance(a, ClusterAction)}
    complete = {plan.account for plan in in_step if plan.account not in held and _is_all(synced, plan)}
    return DesiredGroups(members, complete=complete)


def _is_all(synced: Synced, plan: ResourcePlan) -> bool:
    """Whether nobody is in the account but those who are wanted there: then who else is in the group may go."""
    case = plan.case
    nobody_leaves = synced.plan.facts.rules.nobody_leaves
    is_known = case.members.complete and not (case.members.kept or nobody_leaves)
    return is_known and not (case.also_named_by or case.shared_with)


PASSES: Mapping[Mode, Callable[[Site], PassReport]] = {
    Mode.ORDER_PROCESS: process_orders,
    Mode.MEMBERSHIP_SYNC: sync_members,
    Mode.REPORT: usage.run_pass,
}
