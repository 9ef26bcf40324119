# SPDX-License-Identifier: MIT
"""Queue passes after an approval and the end of a pause: where events replace polls, the next may be an hour away."""

from __future__ import annotations

from agent.cli.output import echo
from agent.config.model import Offering, Settings
from agent.core.errors import SiteAgentError
from agent.core.events import Job
from agent.run.service import event_coverage


def queue(settings: Settings, offering: Offering) -> None:
    """Queue a full pass of each mode of an offering whose polls events replace; say so where the broker is away."""
    modes = event_coverage.modes_by_events(offering)
    if not modes:
        return
    # Imported here: only who needs the broker pays for its libraries.
    from tasks.events import FULL_PASS, MODE_OF, TaskQueue
    from tasks.queue import inspection

    try:
        inspection.connected(settings).release()
        for kind in FULL_PASS:
            if MODE_OF[kind] in modes:
                TaskQueue().send(Job(kind, offering.uuid))
    except SiteAgentError as error:
        echo(f"no pass is queued, so it waits for the next full one: {error}", err=True)
