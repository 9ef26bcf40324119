# SPDX-License-Identifier: MIT
"""Run one pass of a mode over an offering: the loop of the mode, and the provisioning that goes with the accounts.

Called by the tasks, the commands and the tests; the modes themselves are strangers to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from agent.config.model import Mode
from agent.core.account_names import fold
from agent.core.actions import Action, AddMember, ClusterAction, DeleteAccount, only
from agent.core.errors import PassUnfinished, SiteAgentError
from agent.core.model import OfferingUser, Snapshot
from agent.plan import departures
from agent.plan.departures import Departure
from agent.plan.groups import DesiredGroups
from agent.plan.orders import CREATING
from agent.plan.provider_groups import DirectoryNames
from agent.run import api_keys, engine, gate
from agent.run.gate import UNBOUNDED_S, Pass
from agent.run.membership import mode as membership
from agent.run.membership import planning
from agent.run.membership.mode import Synced
from agent.run.membership.planning import SyncFacts
from agent.run.orders import mode as orders
from agent.run.people import mode as people
from agent.run.periodic import mode as periodic
from agent.run.results import PassReport, Result
from agent.run.scope import PassScope
from agent.run.site import Site
from agent.run.usage import mode as usage
from agent.run.waldur_facts import MembershipFacts

Lock = Callable[[str], bool]


def process_orders(site: Site, *, order_uuid: str | None = None, lock: Lock = lambda _: True) -> PassReport:
    """Run one pass over the offering's orders, or over one order. A pass over all also resumes held periodic limits.
    `lock` takes names such as `order:UUID`; orders whose lock is taken are left to its holder.
    """
    with engine.passing(site, Mode.ORDER_PROCESS, subject=order_uuid or "") as run:
        orders.reconcile(run, order_uuid=order_uuid, lock=lambda uuid: lock(f"order:{uuid}"))
        provide_for_orders(run)
        if order_uuid is None:
            resume_periodic_limits(run, lock)
            api_keys.answer_pending(run)
    return run.report


def sync_members(
    site: Site,
    *,
    scope: PassScope = PassScope(),
    seconds: float = UNBOUNDED_S,
    makes_way: Callable[[], bool] = lambda: False,
) -> PassReport:
    """Run one pass over the offering, or some resources and projects. After `seconds`, or once it `makes_way` for
    something more urgent, no new portion is begun, but for the first.
    """
    with engine.passing(
        site, Mode.MEMBERSHIP_SYNC, subject=str(scope), seconds=seconds, makes_way=makes_way
    ) as run:
        synced = membership.reconcile(run, scope, lambda facts, snapshot: name_people(run, facts, snapshot))
        provide_for_members(run, synced)
    return run.report


def name_people(run: Pass, facts: MembershipFacts, snapshot: Snapshot) -> MembershipFacts:
    """Give names to people who have none yet. Return the facts with the offering's users as they are then."""
    if not gate.may_tell(run.rules):
        return facts
    named = people.name_people(run, replace(facts, cluster=snapshot))
    return replace(facts, users=named.users, names_unknown=named.unknown)


def name_offering_users(site: Site) -> PassReport:
    """Give names to the people of the offering who have none yet, as a pass over members does first, and nothing else.
    It is no pass of its own: `status` goes on showing the last one.
    """
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, subject="usernames", is_recorded=False) as run:
        membership.observe(site, PassScope(), lambda facts, snapshot: name_people(run, facts, snapshot))
    return run.report


def provide_for_orders(run: Pass) -> None:
    """Provision groups and homes of the accounts that orders made and ended, before the next membership pass."""
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
    """Carry out messages of periodic policies that were approved, or came in a pause."""
    report = run.report
    for resumed in periodic.resume(run.site, run.rules, lambda uuid: lock(f"periodic_limits:{uuid}")):
        report.outcomes += resumed.outcomes
        report.held += resumed.held
        if resumed.error is not None:
            if not isinstance(resumed.error, PassUnfinished):
                report.problems.append(f"periodic limits: {resumed.error}")
            report.later = report.later or resumed.retryable_error


def provide_for_members(run: Pass, synced: Synced, *, shown: Collection[Action] | None = None) -> None:
    """Provision groups and homes of the accounts of a membership pass. `shown` as of `people.provide`."""
    if not gate.may_tell(run.rules):
        return
    desired = desired_groups(synced)
    people.provide(run, desired, desired.users, is_whole=synced.plan.is_whole, shown=shown)
    if synced.seen is not None and gate.is_known(run, membership.MODE, synced.plan):
        leaving = departures_of(synced.plan.facts, synced.seen, synced.unremovable)
        people.end_accounts(run, leaving, synced.plan.facts.waldur.offering, synced.seen)
    if synced.plan.is_whole:
        waldur = synced.plan.facts.waldur
        people.provide_project_groups(run, DirectoryNames(waldur.users, waldur.names_unknown))
        api_keys.answer_all(run, waldur.resources)


def departures_of(
    facts: SyncFacts, seen: Snapshot, unremovable: Mapping[str, SiteAgentError]
) -> Sequence[Departure]:
    """Return the people whose deletion Waldur wants and that has not ended, with the accounts of the offering that they
    are still in, and that are not those of somebody else of the same name.
    """
    leaving = [user for user in facts.departing if user.state in departures.UNDER_WAY]
    if not leaving:
        return []
    left = {user.uuid: planning.accounts_left(facts, seen, user.cluster_name) for user in leaving}
    # Whose deletion has not begun may still stay, but for those who are in nothing that could keep them.
    others = (user for user in facts.waldur.users if user.uuid not in left or left[user.uuid])
    staying = departures.staying_names(others, facts.taken_back).union(*facts.belonging.values())

    def departure(user: OfferingUser) -> Departure:
        name, inside = fold(user.cluster_name), left[user.uuid]
        fault = unremovable.get(name) or (None if inside else departures.unknown_entry(user))
        return Departure(user, inside, fault, is_shared=name in staying)

    return [departure(user) for user in leaving]


def desired_groups(synced: Synced) -> DesiredGroups:
    """Return the groups of the accounts that are in step, and ours.

    A group is complete where nobody but the wanted members is in the account: others may then leave the group.
    """
    in_step = [
        plan
        for plan in synced.plan.plans
        if plan.spec
        and plan.case.resource.uuid not in synced.errors
        and synced.decision.ledger.is_ours(plan.account)
    ]
    members: dict[str, frozenset[str]] = {}
    for plan in in_step:
        own = plan.spec.members if plan.spec else ()
        members[plan.account] = members.get(plan.account, frozenset()).union(own)
    held = {a.account for p in synced.decision.held for a in p.actions if isinstance(a, ClusterAction)}
    complete = set()
    for plan in in_step:
        case = plan.case
        unclear = case.members.unclear(case.members.stale(synced.plan.snapshot.users_of(plan.account)))
        may_stay = case.members.kept or unclear or synced.plan.facts.rules.nobody_leaves
        is_shared = case.also_named_by or case.shared_with
        if plan.account not in held and case.members.complete and not may_stay and not is_shared:
            complete.add(plan.account)
    known = None
    if synced.plan.facts.rules.keeps_unmanaged:
        known = frozenset[str]().union(*{plan.case.members.known for plan in in_step})
    return DesiredGroups(members, complete=complete, known=known)


PASSES: Mapping[Mode, Callable[[Site], PassReport]] = {
    Mode.ORDER_PROCESS: process_orders,
    Mode.MEMBERSHIP_SYNC: sync_members,
    Mode.REPORT: usage.run_pass,
}
