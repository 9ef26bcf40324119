# SPDX-License-Identifier: MIT
"""Report tasks: the periodic report of an offering. It yields to orders and members that wait."""

from __future__ import annotations

import beat_schedule as table
from agent.config.model import Mode
from agent.run import passes
from tasks import current, sites
from tasks.app import app
from tasks.base import SiteTask
from tasks.limits import PASS_BUDGET_S
from tasks.queue import broker

MODE = Mode.REPORT


@app.task(name="report.poll", bind=True)
def poll(self: SiteTask, offering_uuid: str) -> object:
    """Submit usage of all resources. Yields when something urgent comes: the next task submits the rest, at once."""
    broker.queue().forget(table.polled(self.name, offering_uuid))
    queue = table.queue_name(current.offering(offering_uuid).queue)
    with self.at_work(f"{MODE}:{offering_uuid}", is_poll=True) as is_ours:
        if not is_ours:
            return "another pass is under way"
        found = passes.report_usage(
            sites.site(offering_uuid, MODE),
            seconds=PASS_BUDGET_S,
            must_yield=lambda: broker.here().urgent_waits(queue, table.PRIORITY_OF[MODE]),
        )
    sites.show(offering_uuid, MODE, found)
    return self.finish(found)
