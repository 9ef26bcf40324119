# SPDX-License-Identifier: MIT
"""Run one pass of a mode over an offering."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.config.model import Mode
from agent.core.errors import PassUnfinished
from agent.plan.provider_groups import DirectoryNames
from agent.run import api_keys, engine, gate, waldur_facts
from agent.run.gate import UNBOUNDED_S, Pass
from agent.run.handed_on import AccountsInStep, NamedPeople, PeopleLeaving
from agent.run.membership.mode import Members
from agent.run.orders.mode import Orders
from agent.run.people import mode as people
from agent.run.periodic import mode as periodic
from agent.run.results import PassReport
from agent.run.scope import EVERYTHING, PassScope
from agent.run.site import Site
from agent.run.usage import mode as usage
from agent.run.waldur_facts import MembershipFacts, members_of

Lock = Callable[[str], bool]


def process_orders(site: Site, *, order_uuid: str | None = None, lock: Lock = lambda _: True) -> PassReport:
    """Run one pass over the offering's orders, or over one order."""
    with engine.passing(site, Mode.ORDER_PROCESS, scope=PassScope(order=order_uuid or ""), lock=lock) as run:
        engine.walk(run, (Orders,))
        provide(run)
        if order_uuid is None:
            resume_periodic_limits(run, lock)
            api_keys.answer_pending(run)
    return run.report


def sync_members(
    site: Site,
    *,
    scope: PassScope = EVERYTHING,
    seconds: float = UNBOUNDED_S,
    makes_way: Callable[[], bool] = lambda: False,
) -> PassReport:
    """Run one pass over the offering, or some resources and projects."""
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, scope=scope, seconds=seconds, makes_way=makes_way) as run:
        name_people(run)
        engine.walk(run, (Members,))
        provide(run)
        if run.result(DirectoryNames) and gate.may_tell(run.rules):
            api_keys.answer_all(run, run.result(MembershipFacts).resources)
    return run.report


def name_people(run: Pass) -> None:
    if not gate.may_tell(run.rules):
        return
    facts = waldur_facts.read(run)
    if facts.cluster is None:
        return
    members = members_of(facts, facts.cluster) if any(not u.username for u in facts.users) else frozenset()
    named = people.name_people(run, facts.users, facts.offering, facts.cluster, members)
    run.leave(NamedPeople(named.users, named.names_unknown))


def name_offering_users(site: Site) -> PassReport:
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, subject="usernames", is_recorded=False) as run:
        name_people(run)
    return run.report


def provide(run: Pass) -> None:
    if not gate.may_tell(run.rules):
        return
    if step := run.result(AccountsInStep):
        people.provide(run, step.desired, step.users, is_whole=step.is_whole)
    if leaving := run.result(PeopleLeaving):
        people.end_accounts(run, leaving.departures, leaving.offering, leaving.seen)
    if names := run.result(DirectoryNames):
        people.provide_project_groups(run, names)


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


PASSES: Mapping[Mode, Callable[[Site], PassReport]] = {
    Mode.ORDER_PROCESS: process_orders,
    Mode.MEMBERSHIP_SYNC: sync_members,
    Mode.REPORT: usage.run_pass,
}
