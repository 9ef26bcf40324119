# SPDX-License-Identifier: MIT
"""Reports: Waldur is told what each allocation and each of its users used, month by month, as the cluster counts it.

observe the cluster and Waldur (`report_facts`) -> plan (`report_plan`) -> policy -> tell (`report_apply`). Called by
the tasks and by `manage.py run` and `plan`. Resources keep their state, whatever becomes of a report.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from weakref import WeakKeyDictionary

from agent.config.model import Mode
from agent.core.errors import SiteAgentError
from agent.plan.policy.gate import Decision
from agent.run import gate as policing
from agent.run.results import PassReport, Result
from agent.run.site import Site, effort_of
from agent.run.usage import planning as report_plan
from agent.run.usage import submission as report_apply
from agent.run.usage.planning import Clock, PlannedReport
from agent.run.usage.submission import Delivery
from agent.state import passes
from agent.state import reported as report_claims
from agent.waldur.client import WaldurClient

log = logging.getLogger(__name__)

MODE = Mode.REPORT
UNBOUNDED_S = float("inf")
TELLING_S = 30.0
NAMED_AT_MOST = 5


@dataclass(frozen=True)
class Steps:
    """What a pass asks between its steps: the time, and whether it shall end."""

    clock: Clock
    interrupted: Callable[[], bool] = lambda: False


# What was told last, for the life of a site's client.
_told: WeakKeyDictionary[WaldurClient, frozenset[str]] = WeakKeyDictionary()


def plan(site: Site, clock: Clock | None = None) -> PlannedReport:
    """What a report would tell Waldur now. Changes nothing. Raises SiteAgentError."""
    return report_plan.plan(site, clock)


def judged(site: Site, planned: PlannedReport) -> Decision:
    """What the policy would do with this plan. Writes nothing."""
    return policing.judged(site, MODE, planned.plan(), planned.snapshot, planned.grounds)


def run_pass(
    site: Site,
    *,
    seconds: float = UNBOUNDED_S,
    interrupted: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
) -> PassReport:
    """One report over the offering. After half of `seconds` no further month is read, and after
    all of them, or when `interrupted`, no new portion is begun.
    """
    began_s = time.monotonic()
    tell_time = clock or _clock_of(site)

    def work(report: PassReport) -> None:
        planned = report_plan.plan(site, tell_time, lambda: time.monotonic() > began_s + seconds / 2)
        # What took long to read is not read again for a few requests.
        until_s = max(began_s + seconds, time.monotonic() + TELLING_S)
        _carry_out(
            site, planned, report, Steps(tell_time, lambda: time.monotonic() > until_s or interrupted())
        )

    return _recorded(site, work)


def apply_planned(site: Site, planned: PlannedReport) -> PassReport:
    """Tell Waldur what `plan` has just found."""
    return _recorded(site, lambda report: _carry_out(site, planned, report, Steps(_clock_of(site))))


def _clock_of(site: Site) -> Clock:
    return lambda: datetime.now(site.zone)


def _recorded(site: Site, work: Callable[[PassReport], None]) -> PassReport:
    report = PassReport(MODE, site.offering.uuid, site.offering.name)
    with effort_of(site) as report.effort:
        try:
            work(report)
        except SiteAgentError as error:
            report.error = error
    passes.record(site.state_dir, report)
    return report


def _carry_out(site: Site, planned: PlannedReport, report: PassReport, steps: Steps) -> None:
    report_claims.leave(site, planned.picture.resources)
    judgement = policing.policed(site, MODE, planned.plan(), planned.snapshot, planned.grounds)
    report.held, report.refused = judgement.held, judgement.refused
    report.notes += planned.notes
    report.left_alone = planned.left_alone
    report_apply.apply(Delivery(site, planned, judgement, report, steps.interrupted, clock=steps.clock))
    _tell(site, report)


def _tell(site: Site, report: PassReport) -> None:
    """What an operator should know, once and not in every pass. What is held or left out is told already."""
    stuck: dict[str, list[str]] = {}
    for resource in report.resources:
        if resource.result is Result.STUCK:
            stuck.setdefault(resource.message, []).append(resource.account)
    news = {*report.notes, *(f"{_some(accounts)}: {message}" for message, accounts in stuck.items())}
    for sentence in sorted(news - _told.get(site.client, frozenset())):
        log.warning("report of offering %s: %s", site.offering.name, sentence)
    _told[site.client] = frozenset(news)


def _some(accounts: Sequence[str]) -> str:
    more = len(accounts) - NAMED_AT_MOST
    return ", ".join(accounts[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
