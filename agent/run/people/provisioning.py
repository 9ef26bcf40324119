# SPDX-License-Identifier: MIT
"""What goes with accounts and is no account: names for new people before a plan, groups and homes after it.

None of it holds the cluster back: a directory or a file system that is away costs its own part of the pass, and
the next one goes on. In a pause, and in a mode that only observes, nothing of it happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.config.model import Mode
from agent.core.actions import Action, AddMember, ClusterAction, DeleteAccount
from agent.core.directory_actions import DirectoryAction
from agent.core.errors import WaldurError
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.core.policy import PolicyMode
from agent.plan.groups import GroupWishes
from agent.plan.membership import ResourcePlan
from agent.plan.orders import CREATING
from agent.run import gate as policing
from agent.run.membership.apply import Sync
from agent.run.membership.facts import MembershipFacts
from agent.run.people import groups, homes, usernames
from agent.run.people.groups import GroupReport
from agent.run.people.homes import HomesReport
from agent.run.people.usernames import UsernameReport
from agent.run.results import PassReport, Result
from agent.run.site import Site
from agent.state import journal


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
    wishes = group_wishes(sync)
    _groups(site, wishes, report)
    _homes(site, (user for users in wishes.members.values() for user in users), report)


def group_wishes(sync: Sync) -> GroupWishes:
    """The groups as the accounts that are in step want them."""
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
    return GroupWishes(members, complete=complete if _may_remove(sync.site) else frozenset())


def foreseen_names(site: Site, facts: MembershipFacts, snapshot: Snapshot) -> list[Action]:
    """What `named` would do now. Changes nothing. Raises SiteAgentError."""
    return usernames.plan(site, facts.users, facts.offering, snapshot=snapshot) if _may_act(site) else []


def foreseen_groups(sync: Sync) -> list[DirectoryAction]:
    """What becomes of the groups after a pass that does all that it is allowed. Raises SiteAgentError."""
    return groups.plan(sync.site, group_wishes(sync)) if _may_act(sync.site) else []


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
    failed = [outcome for outcome in settled.outcomes if _is_failure(outcome)]
    if failed:
        first = failed[0]
        report.problems.append(
            f"{what}: {len(failed)} of {len(settled.outcomes)} actions failed, the first: "
            f"{first.action.verb} {first.action.target()}: {first.error}"
        )


def _is_failure(outcome: Outcome) -> bool:
    """Whether an operator should know. 409: the person has moved on meanwhile, the next pass sees where to."""
    error = outcome.error
    return error is not None and not (isinstance(error, WaldurError) and error.status == 409)


def _homes(site: Site, users: Iterable[str], report: PassReport, mode: Mode = Mode.MEMBERSHIP_SYNC) -> None:
    settled = homes.settle(site, frozenset(users))
    report.homes = _counted(settled)
    report.home_problems += [f"homes: {problem}" for problem in settled.problems]
    told = {user: error for user, error in settled.failed.items() if _is_news(settled, user)}
    if told:
        user, error = next(iter(told.items()))
        report.home_problems.append(f"homes of {len(told)} users failed, the first of {user}: {error}")
    _note(site, report, settled.outcomes, mode)


def _counted(settled: HomesReport) -> dict[str, int]:
    """As `HomesReport.counted`; who can never have a home here is no failure of each pass."""
    counts = {**settled.counted(), "refused": len(settled.refused)}
    counts["failed"] = len(settled.failed) - len(settled.refused)
    return {name: count for name, count in sorted(counts.items()) if count}


def _is_news(settled: HomesReport, user: str) -> bool:
    return user not in settled.refused or user in settled.news


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
