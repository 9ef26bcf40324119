# SPDX-License-Identifier: MIT
"""The passes: each is a list of modes, composed here and nowhere else, to be carried out or to be shown.

Called by the tasks, the commands and the tests. The modes do not import each other: what one leaves for those after
it is in `agent.run.handed_on`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from agent.config.model import Mode
from agent.core.errors import BackendError
from agent.core.scope import EVERYTHING, PassScope
from agent.plan.groups import DesiredGroups
from agent.run import engine, gate
from agent.run.gate import UNBOUNDED_S, Pass
from agent.run.handed_on import AccountsInStep
from agent.run.keys.api_keys import Keys
from agent.run.keys.usage import KeyUsage
from agent.run.membership.limits import Limits
from agent.run.membership.mode import Members
from agent.run.orders.mode import Orders
from agent.run.people.departures import Departures
from agent.run.people.groups import Groups
from agent.run.people.homes import Homes, HomesReport
from agent.run.people.project_directories import Directories
from agent.run.people.provider_groups import ProjectGroups
from agent.run.people.usernames import Usernames
from agent.run.periodic.mode import PeriodicResume
from agent.run.results import PassReport
from agent.run.site import Site
from agent.run.usage.mode import Usage
from agent.run.waldur_facts import MembershipFacts
from agent.state import finalised_usage
from agent.waldur import members

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
    `lock` takes names such as `periodic_limits:UUID`; what is taken is left to its holder.
    """
    with engine.passing(site, Mode.ORDER_PROCESS, scope=PassScope(order=order_uuid), lock=lock) as run:
        engine.walk(run, ORDERS)
    return run.report


def sync_members(
    site: Site,
    *,
    scope: PassScope = EVERYTHING,
    seconds: float = UNBOUNDED_S,
    must_yield: Callable[[], bool] = lambda: False,
) -> PassReport:
    """Run one pass over the offering, or some resources and projects. After `seconds`, or once it `must_yield` for
    something more urgent, no new portion is begun, but for the first.
    """
    with engine.passing(
        site, Mode.MEMBERSHIP_SYNC, scope=scope, seconds=seconds, must_yield=must_yield
    ) as run:
        engine.walk(run, MEMBERSHIP)
    return run.report


def name_offering_users(site: Site) -> PassReport:
    """Give names to the people of the offering who have none yet, as a pass over members does first, and nothing else.
    It is no pass of its own: `status` goes on showing the last one.
    """
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, subject="usernames", is_recorded=False) as run:
        engine.walk(run, (Usernames,))
    return run.report


def report_limits(site: Site) -> PassReport:
    """Show in Waldur the limits that the offering's accounts have on the cluster, where those count, and do nothing
    else. It is no pass of its own, as for names.
    """
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, subject="limits", is_recorded=False) as run:
        engine.walk(run, (Limits,))
    return run.report


def make_homes(site: Site, mode: Mode) -> tuple[Pass, HomesReport]:
    """Make the homes of all users of the offering who have a name, whatever is remembered of them and however long it
    takes. It is no pass of its own, as for names. Raises SiteAgentError.
    """
    report = HomesReport()
    with engine.passing(site, mode, is_recorded=False) as run:
        run.cause = "create-homedirs"
        if gate.may_report(run.rules):
            names = {user.username for user in members.offering_users(site.client) if user.may_use}
            run.leave(AccountsInStep(DesiredGroups({}), frozenset(names)))
            all_homes = Homes(run, at_most=len(names), budget_s=math.inf, again=True)
            engine.run_optional(run, all_homes)
            report = all_homes.report
    if run.report.error is not None:
        raise run.report.error
    return run, report


def report_usage(
    site: Site,
    *,
    seconds: float = UNBOUNDED_S,
    must_yield: Callable[[], bool] = lambda: False,
    clock: Callable[[], datetime] | None = None,
) -> PassReport:
    """Run one report over the offering. After half of `seconds` no further month is read, and after all of them, or
    once it `must_yield`, no new portion is begun. `clock` returns the time of now, with its zone.
    """
    with engine.passing(site, Mode.REPORT, seconds=seconds, must_yield=must_yield, clock=clock) as run:
        engine.walk(run, REPORT)
    if isinstance(run.report.error, BackendError):
        finalised_usage.drop(site.state_dir, site.offering.uuid)
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
        run.given = {type(work.mode): work.plan for work in looked.works if not work.mode.optional_name}
        if (read := looked.result(MembershipFacts)) is not None:
            run.leave(read)
        engine.walk(run, LISTS[looked.mode])
    return run.report


PASSES: Mapping[Mode, Callable[[Site], PassReport]] = {
    Mode.ORDER_PROCESS: process_orders,
    Mode.MEMBERSHIP_SYNC: sync_members,
    Mode.REPORT: report_usage,
}
