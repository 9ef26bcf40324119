# SPDX-License-Identifier: MIT
"""Reports: Waldur is told what each allocation and each of its users used, month by month, as the cluster counts it.

observe the cluster and Waldur (`report_facts`) -> plan (`report_plan`) -> policy -> tell (`report_apply`). Called by
the tasks and by `manage.py run` and `plan`. Resources keep their state, whatever becomes of a report.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from agent.config.model import Mode
from agent.core.errors import SiteAgentError
from agent.plan.policy import Judgement
from agent.run import passes, policing, report_apply, report_plan
from agent.run.report_apply import Delivery
from agent.run.report_plan import Clock, PlannedReport
from agent.run.results import PassReport
from agent.run.sites import Site, effort_of
from agent.waldur.client import WaldurClient

log = logging.getLogger(__name__)

MODE = Mode.REPORT
UNBOUNDED_S = float("inf")

# What was told last, for the life of a site's client.
_told: WeakKeyDictionary[WaldurClient, frozenset[str]] = WeakKeyDictionary()


def plan(site: Site, clock: Clock | None = None) -> PlannedReport:
    """What a report would tell Waldur now. Changes nothing. Raises SiteAgentError."""
    return report_plan.plan(site, clock)


def judged(site: Site, planned: PlannedReport) -> Judgement:
    """What the policy would do with this plan. Writes nothing."""
    return policing.judged(site, MODE, planned.plan(), planned.snapshot)


def run_pass(
    site: Site,
    *,
    seconds: float = UNBOUNDED_S,
    interrupted: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
) -> PassReport:
    """One report over the offering. After `seconds`, or when `interrupted`, no new portion is begun."""
    until_s = time.monotonic() + seconds
    return _recorded(
        site,
        lambda report: _carry_out(
            site, report_plan.plan(site, clock), report, lambda: time.monotonic() > until_s or interrupted()
        ),
    )


def apply_planned(site: Site, planned: PlannedReport) -> PassReport:
    """Tell Waldur what `plan` has just found."""
    return _recorded(site, lambda report: _carry_out(site, planned, report, lambda: False))


def _recorded(site: Site, work: Callable[[PassReport], None]) -> PassReport:
    report = PassReport(MODE, site.offering.uuid, site.offering.name)
    with effort_of(site) as report.effort:
        try:
            work(report)
        except SiteAgentError as error:
            report.error = error
    passes.record(site.state_dir, report)
    return report


def _carry_out(
    site: Site, planned: PlannedReport, report: PassReport, interrupted: Callable[[], bool]
) -> None:
    judgement = policing.policed(site, MODE, planned.plan(), planned.snapshot)
    report.held, report.refused = judgement.held, judgement.refused
    report.notes += planned.notes
    report_apply.apply(Delivery(site, planned, judgement, report, interrupted))
    _tell(site, report)


def _tell(site: Site, report: PassReport) -> None:
    """What an operator should know, once and not in every pass."""
    news = {
        *report.notes,
        *(
            f"resource {r.resource_uuid}: {r.message}"
            for r in report.resources
            if r.result not in ("done", "retry")
        ),
    }
    for sentence in sorted(news - _told.get(site.client, frozenset())):
        log.warning("report of offering %s: %s", site.offering.name, sentence)
    _told[site.client] = frozenset(news)
