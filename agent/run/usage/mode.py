# SPDX-License-Identifier: MIT
"""Reports: Waldur is told what each allocation and each of its users used, month by month, as the cluster counts it.

observe and plan (`planning`) -> tell (`submission`). Called by the tasks and by `manage.py run` and `plan`. Resources
keep their state, whatever becomes of a report.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from weakref import WeakKeyDictionary

from agent.config.model import Mode
from agent.run import engine, gate
from agent.run.engine import Steps, Work
from agent.run.gate import UNBOUNDED_S
from agent.run.results import PassReport, Result
from agent.run.site import Site
from agent.run.usage import planning
from agent.run.usage.planning import Clock, PlannedReport, ReportFacts
from agent.run.usage.submission import Submission
from agent.state import reported_accounts
from agent.waldur.client import WaldurClient

log = logging.getLogger(__name__)

MODE = Mode.REPORT
TELLING_S = 30.0
NAMED_AT_MOST = 5

# What was told last, for the life of a site's client.
_told: WeakKeyDictionary[WaldurClient, frozenset[str]] = WeakKeyDictionary()


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

    def is_late() -> bool:
        return time.monotonic() > began_s + seconds / 2

    with engine.passing(site, MODE) as run:
        planned = engine.plan_of(steps(site, clock, is_late))
        # What took long to read is not read again for a few requests.
        until_s = max(began_s + seconds, time.monotonic() + TELLING_S)
        is_over = steps(site, clock, interrupted=lambda: time.monotonic() > until_s or interrupted())
        engine.carry_out(run, is_over, planned)
        _tell(site, run.report)
    return run.report


def plan(site: Site, clock: Clock | None = None) -> PlannedReport:
    """What a report would tell Waldur now. Changes nothing. Raises SiteAgentError."""
    return engine.plan_of(steps(site, clock))


def carry_out(site: Site, planned: PlannedReport, clock: Clock | None = None) -> PassReport:
    """Tell Waldur what `plan` has found, maybe a while ago."""
    with engine.passing(site, MODE) as run:
        engine.carry_out(run, steps(site, clock), planned)
        _tell(site, run.report)
    return run.report


def steps(
    site: Site,
    clock: Clock | None = None,
    is_late: Callable[[], bool] = lambda: False,
    interrupted: Callable[[], bool] = lambda: False,
) -> Steps[ReportFacts, PlannedReport]:
    """The loop over the months that are told of."""
    tell_time = clock or (lambda: datetime.now(site.zone))
    submission = Submission(site, tell_time, interrupted)

    def announce(work: Work[PlannedReport]) -> None:
        """Tell the other offerings which accounts this one tells of, and the operator what there is to know."""
        if site.counting_alike and gate.is_known(work.run, MODE, work.plan):
            resources = work.plan.picture.resources
            reported_accounts.write(site.state_dir, site.backend.cluster, site.offering.uuid, resources)
        work.report.notes += work.plan.notes
        work.report.left_alone = work.plan.left_alone

    def tell(work: Work[PlannedReport]) -> None:
        submission.tell(work)
        submission.remember(work)

    return Steps(
        key=MODE,
        observe=lambda: planning.observe(site, tell_time, is_late),
        plan=planning.plan,
        refine=lambda facts, plan: planning.refine(site, facts, plan),
        announce=announce,
        portions=submission.portions,
        apply=submission.apply,
        read_back=submission.note,
        failed=submission.leave,
        tell=tell,
    )


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
