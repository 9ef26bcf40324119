# SPDX-License-Identifier: MIT
"""Passes after a pause that has ended by itself: where events replace polls, the next one may be an hour away.

A worker finds it in the state file of its head node. What is to be queued is forgotten once the broker has it, so that
neither a restart nor an outage loses it.
"""

from __future__ import annotations

import logging
from collections.abc import Container

import beat_schedule as table
from agent.core.errors import SiteAgentError
from agent.run.service.event_coverage import modes_by_events
from agent.state import pauses
from tasks import current, events
from tasks.queue import broker

log = logging.getLogger(__name__)


def queue_passes(queues: Container[str]) -> None:
    """Queue full passes of the offerings of these queues whose pause has ended. What fails is for the next call."""
    settings = current.settings()
    try:
        if not broker.here().store.knows_queue:
            return  # without heartbeats all polls run
        for uuid, until in pauses.ended(settings.state_dir).items():
            offering = settings.offering(uuid)
            if offering is None or table.queue_name(offering.queue) not in queues:
                continue
            if modes := modes_by_events(offering):
                events.queue_full_passes(uuid, modes)
                pauses.forget_ended(settings.state_dir, offering, until)
                log.info("offering %s: its pause has ended, and what waited is looked at", offering.name)
    except SiteAgentError as error:
        log.debug("the passes after a pause are not queued yet: %s", error)
