# SPDX-License-Identifier: MIT
"""The passes: each is a list of modes, composed here and nowhere else, to be carried out or to be shown.

Called by the tasks, the commands and the tests. The modes are strangers to each other: what one leaves for those after
it is in `agent.run.handed_on`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.config.model import Mode
from agent.core.errors import PassUnfinished
from agent.run import api_keys, engine
from agent.run.gate import UNBOUNDED_S, Pass
from agent.run.membership.mode import Members
from agent.run.orders.mode import Orders
from agent.run.people.departures import Departures
from agent.run.people.groups import Groups
from agent.run.people.homes import Homes
from agent.run.people.project_directories import Directories
from agent.run.people.provider_groups import ProjectGroups
from agent.run.people.usernames import Usernames
from agent.run.periodic import mode as periodic
from agent.run.results import PassReport
from agent.run.scope import EVERYTHING, PassScope
from agent.run.site import Site
from agent.run.usage import mode as usage
from agent.run.waldur_facts import MembershipFacts

Modes = Sequence[type[engine.Mode[Any, Any]]]

ORDERS: Modes = (Orders, Groups, Directories, Homes)
MEMBERSHIP: Modes = (Usernames, Members, Groups, Directories, Homes, Departures, ProjectGroups)
REPORT: Modes = ()

LISTS: Mapping[Mode, Modes] = {
    Mode.ORDER_PROCESS: ORDERS,
    Mode.MEMBERSHIP_SYNC: MEMBERSHIP,
    Mode.REPORT: REPORT,
}


def process_orders(
    site: Site, *, order_uuid: str = "", lock: Callable[[str], bool] = lambda _: True
) -> PassReport:
    """Run one pass over the offering's orders, or over one order. A pass over all also resumes held periodic limits.
    `lock` takes names such as `order:UUID`; orders whose lock is taken are left to its holder.
    """
    with engine.passing(site, Mode.ORDER_PROCESS, scope=PassScope(order=order_uuid), lock=lock) as run:
        engine.walk(run, ORDERS)
        if not order_uuid:
            for resumed in periodic.resume(run.site, run.rules, lambda uuid: lock(f"periodic_limits:{uuid}")):
                run.report.outcomes += resumed.outcomes
                run.report.held += resumed.held
                if resumed.error is not None:
                    if not isinstance(resumed.error, PassUnfinished):
                        run.report.problems.append(f"periodic limits: {resumed.error}")
                    run.report.later = run.report.later or resumed.retryable_error
            api_keys.answer_pending(run)
    return run.report


def sync_members(
    site: Site,
    *,
    scope: PassScope = EVERYTHING,
    seconds: float = UNBOUNDED_S,
    makes_way: Callable[[], bool] = lambda: False,
) -> PassReport:
    """Run one pass over the offering, or some resources and projects. After `seconds`, or once it `makes_way` for
    something more urgent, no new portion is begun, but for the first.
    """
    with engine.passing(
        site, Mode.MEMBERSHIP_SYNC, scope=scope, seconds=seconds, makes_way=makes_way
    ) as run:
        engine.walk(run, MEMBERSHIP)
        if scope.is_everything and run.result(MembershipFacts):
            api_keys.answer_all(run, run.result(MembershipFacts).resources)
    return run.report


def name_offering_users(site: Site) -> PassReport:
    """Give names to the people of the offering who have none yet, as a pass over members does first, and nothing else.
    It is no pass of its own: `status` goes on showing the last one.
    """
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, subject="usernames", is_recorded=False) as run:
        engine.walk(run, (Usernames,))
    return run.report


def look(site: Site, mode: Mode, scope: PassScope = EVERYTHING) -> Pass:
    """Return a pass that has decided what it would do, and changed nothing. Raises SiteAgentError."""
    with engine.passing(site, mode, scope=scope, applies=False) as run:
        engine.walk(run, LISTS[mode])
    if run.report.error is not None:
        raise run.report.error
    return run


def apply_shown(looked: Pass) -> PassReport:
    """Carry out what such a pass has shown, and nothing else; the policy is asked again."""
    with engine.passing(looked.site, looked.mode, scope=looked.scope) as run:
        run.shown = frozenset(action for work in looked.works for action in work.plan.actions)
        run.given = {type(work.mode): work.plan for work in looked.works if not work.mode.beside}
        if (read := looked.result(MembershipFacts)) is not None:
            run.leave(read)
        engine.walk(run, LISTS[looked.mode])
    return run.report


PASSES: Mapping[Mode, Callable[[Site], PassReport]] = {
    Mode.ORDER_PROCESS: process_orders,
    Mode.MEMBERSHIP_SYNC: sync_members,
    Mode.REPORT: usage.run_pass,
}
