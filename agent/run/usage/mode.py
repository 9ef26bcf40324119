# SPDX-License-Identifier: MIT
"""Reports: submit to Waldur what each allocation and each of its users used, month by month, as the cluster counts it.

observe and plan (`planning`) -> submit (`submission`). Called by the tasks and by `manage.py run` and `plan`. Resources
keep their state, whatever becomes of a report.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from agent.run import gate
from agent.run.engine import Work
from agent.run.gate import Pass
from agent.run.results import ResourceResult, Result, waits
from agent.run.usage import departed, planning
from agent.run.usage.planning import PlannedReport, ReportFacts
from agent.run.usage.submission import Submission

log = logging.getLogger(__name__)

SUBMITTING_S = 30.0


class Usage(Submission):
    """What all resources and their users have used. After half of the pass's time no further month is read."""

    def __init__(self, run: Pass) -> None:
        super().__init__(run, run.now)

    def observe(self) -> ReportFacts:
        run = self.run
        half_s = (run.began_s + run.until_s) / 2
        return planning.observe(self.site, run.now, lambda: time.monotonic() > half_s)

    def announce(self, work: Work[PlannedReport]) -> None:
        """Remember which accounts this offering reports, and add the notes to the report."""
        run = work.run
        # Usage that took long to read is not read again for a few requests.
        run.until_s = max(run.until_s, time.monotonic() + SUBMITTING_S)
        if gate.is_known(run, self.key, work.plan):
            departed.note(self.site, work.plan)
        work.report.notes += work.plan.notes
        work.report.left_alone = work.plan.left_alone

    def tell(self, work: Work[PlannedReport]) -> None:
        self.report(work)
        self.remember(work)
        # Notes, and for whom it waits and why, once and not in every pass. What is held is logged already.
        held = {action.ids().get("account", "") for plan in work.report.held for action in plan.actions}
        news = {*work.report.notes, *waits(work.report.resources, without=held)}
        for sentence in self.site.cache.said.news(self.key, *sorted(news)):
            log.warning("report of offering %s: %s", self.site.offering.name, sentence)

    def notes(self, plan: PlannedReport) -> Sequence[str]:
        return (*plan.notes, *plan.left_alone)

    def unplanned(self, plan: PlannedReport) -> Sequence[ResourceResult]:
        skipped = {each.resource.uuid: each for month in plan.months for each in month.plans if each.skipped}
        return [
            ResourceResult(
                uuid, Result.STUCK if each.needs_person else Result.WAITING, each.account, each.skipped
            )
            for uuid, each in skipped.items()
        ]
