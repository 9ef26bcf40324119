# SPDX-License-Identifier: MIT
"""Report tasks: the periodic report of an offering. It makes way for orders and members that wait."""

from __future__ import annotations

import beat_schedule as table
from agent.config.model import Mode
from agent.run import passes
from tasks import broker, current
from tasks.app import app
from tasks.base import SiteTask
from tasks.limits import PASS_BUDGET_S
from tasks.locks import held

MODE = Mode.REPORT


@app.task(name="report.poll", bind=True)
def poll(self: SiteTask, offering_uuid: str) -> object:
    """Submit usage of all resources. Makes way when something urgent comes: the next task submits the rest, at once."""
    broker.clear_marker(self.name, offering_uuid)
    queue = table.queue_name(current.offering(offering_uuid).queue)
    with held(broker.locks()) as locks:
        if not locks.take(f"{MODE}:{offering_uuid}"):
            return "another pass is under way"
        found = passes.report_usage(
            current.site(offering_uuid, MODE),
            seconds=PASS_BUDGET_S,
            makes_way=lambda: broker.urgent_waits(queue, table.PRIORITY_OF[MODE]),
        )
    current.show(offering_uuid, MODE, found)
    return self.finish(found)
