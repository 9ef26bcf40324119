# SPDX-License-Identifier: MIT
"""The passes: each is a list of modes, composed here and nowhere else, to be carried out or to be shown.

Called by the tasks, the commands and the tests. The modes are strangers to each other: what one leaves for those after
it is in `agent.run.handed_on`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from agent.config.model import Mode
from agent.core.errors import BackendError
from agent.run import engine
from agent.run.api_keys import Keys
from agent.run.gate import UNBOUNDED_S, Pass
from agent.run.membership.mode import Members
from agent.run.orders.mode import Orders
from agent.run.people.departures import Departures
from agent.run.people.groups import Groups
from agent.run.people.homes import Homes
from agent.run.people.project_directories import Directories
from agent.run.people.provider_groups import ProjectGroups
from agent.run.people.usernames import Usernames
from agent.run.periodic.mode import PeriodicResume
from agent.run.results import PassReport
from agent.run.scope import EVERYTHING, PassScope
from agent.run.site import Site
from agent.run.usage.keys import KeyUsage
from agent.run.usage.mode import Usage
from agent.run.waldur_facts import MembershipFacts
from agent.state import settled_usage

Modes = Sequence[type[engine.Mode[Any, Any]]]

ORDERS: Modes = (Orders, Groups, Directories, Homes, PeriodicResume, Keys)
MEMBERSHIP: Modes = (Usernames, Members, Groups, Directories, Homes, Departures, ProjectGroups, Keys)
REPORT: Modes = (Usage, KeyUsage)

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
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, scope=scope, seconds=seconds, makes_way=makes_way) as run:
        engine.walk(run, MEMBERSHIP)
    return run.report


def name_offering_users(site: Site) -> PassReport:
    """Give names to the people of the offering who have none yet, as a pass over members does first, and nothing else.
    It is no pass of its own: `status` goes on showing the last one.
    """
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, subject="usernames", is_recorded=False) as run:
        engine.walk(run, (Usernames,))
    return run.report


def report_usage(
    site: Site,
    *,
    seconds: float = UNBOUNDED_S,
    makes_way: Callable[[], bool] = lambda: False,
    clock: Callable[[], datetime] | None = None,
) -> PassReport:
    """Run one report over the offering. After half of `seconds` no further month is read, and after all of them, or
    once it `makes_way`, no new portion is begun. `clock` returns the time of now, with its zone.
    """
    with engine.passing(site, Mode.REPORT, seconds=seconds, makes_way=makes_way, clock=clock) as run:
        engine.walk(run, REPORT)
    if isinstance(run.report.error, BackendError):
        settled_usage.drop(site.state_dir, site.offering.uuid)
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
    Mode.REPORT: report_usage,
}
