# SPDX-License-Identifier: MIT
"""Queue passes after an approval and the end of a pause: where events replace polls, the next may be an hour away."""

from __future__ import annotations

from collections.abc import Set

from agent.cli.output import echo
from agent.config.model import Mode, Offering, Settings
from agent.core.errors import SiteAgentError
from agent.run.service import event_coverage


def queue(settings: Settings, offering: Offering) -> None:
    """Queue a full pass of each mode of an offering whose polls events replace; say so where the broker is away."""
    modes = event_coverage.modes_by_events(offering)
    if not modes:
        return
    try:
        start(settings, offering, modes)
    except SiteAgentError as error:
        echo(f"no pass is queued, so it waits for the next full one: {error}", err=True)


def start(settings: Settings, offering: Offering, modes: Set[Mode]) -> None:
    """Queue a full pass of these modes of an offering, of orders and members. Raises SiteAgentError where the broker is
    away.
    """
    # Imported here, as below: only who needs the broker pays for its libraries.
    from tasks.events import queue_full_passes
    from tasks.queue import inspection

    inspection.connected(settings).release()
    queue_full_passes(offering.uuid, modes)


def look(settings: Settings, kind: str, offering: Offering, *subject: str) -> None:
    """Ask a worker to look at something and to leave what it finds in the state. Raises SiteAgentError where the broker
    is away.
    """
    from tasks.looks import enqueue_look
    from tasks.queue import inspection

    inspection.connected(settings).release()
    try:
        enqueue_look(kind, offering.uuid, *subject)
    except inspection.AWAY as error:
        raise inspection.BrokerAway(f"the queue takes no tasks: {error}") from error
