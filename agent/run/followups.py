# SPDX-License-Identifier: MIT
"""What goes with accounts and is no account: names for new people before a plan, groups and homes after it.

None of it holds the cluster back: a directory or a file system that is away costs its own part of the pass, and
the next one goes on. In a pause, and in a mode that only observes, nothing of it happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.config.model import Mode
from agent.core.actions import AddMember, ClusterAction, DeleteAccount
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.core.policy import PolicyMode
from agent.plan.groups import GroupWishes
from agent.plan.membership import ResourcePlan
from agent.plan.orders import CREATING
from agent.run import groups, homes, journal, policing, usernames
from agent.run.groups import GroupReport
from agent.run.membership_apply import Sync
from agent.run.membership_facts import MembershipFacts
from agent.run.results import PassReport, Result
from agent.run.sites import Site
from agent.run.usernames import UsernameReport


def named(site: Site, facts: MembershipFacts, snapshot: Snapshot, report: PassReport) -> MembershipFacts:
    """The facts with the names that people got now."""
    if not _may_act(site):
        return facts
    settled = usernames.settle(site, facts.users, facts.offering, snapshot=snapshot)
    _note(site, report, settled.outcomes)
    _tell(report, "usernames", settled)
    return replace(facts, users=settled.users)


def after_sync(sync: Sync) -> None:
    """Groups and homes of the accounts that this pass looked at."""
    site, report = sync.site, sync.report
    if not _may_act(site):
        return
    in_step = [
        plan for plan in sync.planned.plans if plan.spec and plan.case.resource.uuid not in sync.errors
    ]
    members: dict[str, frozenset[str]] = {}
    for plan in in_step:
        members[plan.account] = members.get(plan.account, frozenset()).union(
            plan.spec.members if plan.spec else ()
        )
    held = {a.account for plan in sync.judgement.held for a in plan.actions if isinstance(a, ClusterAction)}
    complete = {plan.account for plan in in_step if plan.account not in held and _is_all(sync, plan)}
    _groups(site, GroupWishes(members, complete=complete if _may_remove(site) else frozenset()), report)
    _homes(site, (user for users in members.values() for user in users), report)


def _is_all(sync: Sync, plan: ResourcePlan) -> bool:
    """Whether nobody is in the account but those who are wanted there: then who else is in the group may go."""
    case = plan.case
    is_known = case.people.complete and not (case.people.kept or sync.planned.rules.nobody_leaves)
    return is_known and not (case.also_named_by or case.shared_with)


def after_orders(site: Site, report: PassReport) -> None:
    """The same for the accounts that orders made and ended, at once and not in five minutes."""
    done = [outcome.action for outcome in report.outcomes if outcome.done]
    if not done or not _may_act(site):
        return
    made = (o.account for o in report.orders if o.result is Result.DONE and o.type in CREATING)
    joined: dict[str, set[str]] = {account: set() for account in made}
    for action in done:
        if isinstance(action, AddMember) and action.account in joined:
            joined[action.account].add(action.user)
    ended = frozenset(action.account for action in done if isinstance(action, DeleteAccount))
    wishes = GroupWishes({account: frozenset(users) for account, users in joined.items()}, ended=ended)
    _groups(site, wishes, report, Mode.ORDER_PROCESS)
    _homes(site, (user for users in joined.values() for user in users), report, Mode.ORDER_PROCESS)


def _groups(site: Site, wishes: GroupWishes, report: PassReport, mode: Mode = Mode.MEMBERSHIP_SYNC) -> None:
    settled = groups.settle(site, wishes)
    _note(site, report, settled.outcomes, mode)
    _tell(report, "groups", settled)


def _tell(report: PassReport, what: str, settled: UsernameReport | GroupReport) -> None:
    report.later = report.later or settled.retryable_error
    if settled.error is not None:
        report.problems.append(f"{what}: {settled.error}")


def _homes(site: Site, users: Iterable[str], report: PassReport, mode: Mode = Mode.MEMBERSHIP_SYNC) -> None:
    settled = homes.settle(site, frozenset(users))
    report.homes = settled.counted()
    report.problems += [f"homes: {problem}" for problem in settled.problems]
    if settled.failed:
        user, error = next(iter(settled.failed.items()))
        report.problems.append(f"homes of {len(settled.failed)} users failed, the first of {user}: {error}")
    _note(site, report, settled.outcomes, mode)


def _note(
    site: Site, report: PassReport, outcomes: Sequence[Outcome], mode: Mode = Mode.MEMBERSHIP_SYNC
) -> None:
    report.outcomes += outcomes
    journal.record(site, mode, outcomes)


def _may_act(site: Site) -> bool:
    rules = policing.rules_of(site)
    return not rules.paused and rules.mode is not PolicyMode.OBSERVE


def _may_remove(site: Site) -> bool:
    return policing.rules_of(site).mode is PolicyMode.SYNC
