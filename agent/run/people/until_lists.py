# SPDX-License-Identifier: MIT
"""What a mode of this room would do now, for those who do not walk through lists of modes yet."""

# Until passes are lists.

from __future__ import annotations

from typing import Any, TypeVar

from agent.config.model import Mode as PassMode
from agent.run import engine, gate
from agent.run.engine import Mode
from agent.run.gate import Pass, Planned
from agent.run.results import PassReport
from agent.run.site import Site

Plan = TypeVar("Plan", bound=Planned)


def planned(site: Site, kind: type[Mode[Any, Plan]], *left: object) -> Plan | None:
    """Return the plan of a mode after modes that have `left` these, None where there is nothing to do. Changes nothing.
    Raises SiteAgentError.
    """
    report = PassReport(PassMode.MEMBERSHIP_SYNC, site.offering.uuid, site.offering.name)
    run = Pass(site, PassMode.MEMBERSHIP_SYNC, gate.rules_of(site), report, applies=False)
    for each in left:
        run.leave(each)
    for mode in kind.each(run):
        with mode.open:
            return engine.plan_of(mode)
    return None
