# SPDX-License-Identifier: MIT
"""Reports: submit to Waldur what each allocation and each of its users used, month by month, as the cluster counts it.

observe and plan (`planning`) -> submit (`submission`). Called by the tasks and by `manage.py run` and `plan`. Resources
keep their state, whatever becomes of a report.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime

from agent.config.model import Mode
from agent.core.errors import BackendError
from agent.run import engine, gate
from agent.run.engine import Steps, Work
from agent.run.gate import UNBOUNDED_S
from agent.run.results import PassReport, waits
from agent.run.site import Site
from agent.run.usage import departed, keys, planning
from agent.run.usage.planning import Clock, PlannedReport, ReportFacts
from agent.run.usage.submission import Submission
from agent.state import settled_usage

log = logging.getLogger(__name__)

MODE = Mode.REPORT
SUBMITTING_S = 30.0


def run_pass(
    site: Site,
    *,
    seconds: float = UNBOUNDED_S,
    interrupted: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
) -> PassReport:
    """Run one report over the offering. After half of `seconds` no further month is read, and after
    all of them, or when `interrupted`, no new portion is begun.
    """
    began_s = time.monotonic()

    def is_late() -> bool:
        return time.monotonic() > began_s + seconds / 2

    with engine.passing(site, MODE) as run:
        planned = engine.plan_of(steps(site, clock, is_late))
        # Usage that took long to read is not read again for a few requests.
        until_s = max(began_s + seconds, time.monotonic() + SUBMITTING_S)
        is_over = steps(site, clock, interrupted=lambda: time.monotonic() > until_s or interrupted())
        engine.carry_out(run, is_over, planned)
        keys.submit(run, clock or (lambda: datetime.now(site.zone)))
        _log_news(site, run.report)
    if isinstance(run.report.error, BackendError):
        settled_usage.drop(site.state_dir, site.offering.uuid)
    return run.report


def plan(site: Site, clock: Clock | None = None) -> PlannedReport:
    """Return what a report would submit now. Changes nothing. Raises SiteAgentError."""
    return engine.plan_of(steps(site, clock))


def carry_out(site: Site, planned: PlannedReport, clock: Clock | None = None) -> PassReport:
    """Submit what `plan` has found, maybe a while ago."""
    with engine.passing(site, MODE) as run:
        engine.carry_out(run, steps(site, clock), planned)
        keys.submit(run, clock or (lambda: datetime.now(site.zone)))
        _log_news(site, run.report)
    return run.report


def steps(
    site: Site,
    clock: Clock | None = None,
    is_late: Callable[[], bool] = lambda: False,
    interrupted: Callable[[], bool] = lambda: False,
) -> Steps[ReportFacts, PlannedReport]:
    """Return the loop over the months that are submitted."""
    now = clock or (lambda: datetime.now(site.zone))
    submission = Submission(site, now, interrupted)

    def announce(work: Work[PlannedReport]) -> None:
        """Remember which accounts this offering reports, and add the notes to the report."""
        if gate.is_known(work.run, MODE, work.plan):
            departed.note(site, work.plan)
        work.report.notes += work.plan.notes
        work.report.left_alone = work.plan.left_alone

    def tell(work: Work[PlannedReport]) -> None:
        submission.report(work)
        submission.remember(work)

    return Steps(
        key=MODE,
        observe=lambda: planning.observe(site, now, is_late),
        plan=planning.plan,
        refine=lambda facts, plan: planning.refine(site, facts, plan),
        announce=announce,
        portions=submission.portions,
        apply=submission.apply,
        read_back=submission.read_back,
        failed=submission.failed,
        tell=tell,
    )


def _log_news(site: Site, report: PassReport) -> None:
    """Log notes, and for whom it waits and why, once and not in every pass. What is held is logged already."""
    held = {action.ids().get("account", "") for plan in report.held for action in plan.actions}
    news = {*report.notes, *waits(report.resources, without=held)}
    for sentence in sorted(news.difference(site.cache.logged.get(MODE, ()))):
        log.warning("report of offering %s: %s", site.offering.name, sentence)
    site.cache.logged[MODE] = tuple(news)
