# SPDX-License-Identifier: MIT
"""The drift report: what a pass would do, computed on a schedule; nothing is applied."""

from __future__ import annotations

import beat_schedule as table
from agent.core.errors import SiteAgentError
from agent.run.preview import drift
from tasks import current, sites
from tasks.app import app
from tasks.base import SiteTask
from tasks.queue import broker


@app.task(name=table.DRIFT_TASK, bind=True)
def report(self: SiteTask, offering_uuid: str) -> dict[str, object]:
    """Compare all modes of one offering. What cannot be compared now is compared the next time."""
    broker.queue().forget(table.polled(self.name, offering_uuid))
    found: dict[str, object] = {}
    offering = current.offering(offering_uuid)
    for mode in table.STEERING:
        if not offering.backend_of(mode) or mode in offering.stopped:
            continue
        try:
            found[mode] = drift.look(sites.site(offering_uuid, mode), mode).differences
        except SiteAgentError as error:
            found[mode] = str(error)
    return found
