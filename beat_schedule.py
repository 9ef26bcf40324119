# SPDX-License-Identifier: MIT
"""Compute the beat table: offerings and periods in, Celery beat entries out. Pure; decides only when tasks run.

An entry exists for every mode that an offering has a backend for. It expires after one period: a pass that
nobody took in that time is replaced by the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.config.model import Mode, Settings

TASK_OF: Mapping[Mode, str] = {
    Mode.ORDER_PROCESS: "order_process.poll",
    Mode.MEMBERSHIP_SYNC: "membership_sync.poll",
    Mode.REPORT: "report.poll",
}
# Modes that change the cluster: the drift report compares these.
STEERING = (Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC)


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry: which task, for which offering, how often, to which queue, how urgent (0 is first)."""

    name: str
    task: str
    offering_uuid: str
    period_s: float
    queue: str
    priority: int


# Steps of Celery's Redis transport; events (3) come between orders and membership, past months after all that recurs.
PRIORITY_OF: Mapping[Mode, int] = {Mode.ORDER_PROCESS: 0, Mode.MEMBERSHIP_SYNC: 6, Mode.REPORT: 8}
EVENT_PRIORITY = 3
BACKFILL_PRIORITY = 9

# The drift report of an offering: once an hour, after everything else.
DRIFT_TASK = "drift.report"
DRIFT_PERIOD_S = 3600.0
DRIFT_PRIORITY = 8


def queue_name(queue: str) -> str:
    """Return the name of the queue that the workers of one head node read."""
    return f"site.{queue}"


def slots(settings: Settings) -> list[Slot]:
    """Return the passes of every offering, then the drift reports of those with a mode that changes the cluster."""
    found = [
        Slot(
            name=f"{mode}:{offering.uuid}",
            task=TASK_OF[mode],
            offering_uuid=offering.uuid,
            period_s=settings.periods.minutes_of(mode) * 60,
            queue=queue_name(offering.queue),
            priority=PRIORITY_OF[mode],
        )
        for offering in settings.offerings
        for mode in TASK_OF
        if offering.backend_of(mode) and mode not in offering.stopped
    ]
    for offering in settings.offerings:
        if any(offering.backend_of(mode) and mode not in offering.stopped for mode in STEERING):
            found.append(
                Slot(
                    name=f"drift:{offering.uuid}",
                    task=DRIFT_TASK,
                    offering_uuid=offering.uuid,
                    period_s=DRIFT_PERIOD_S,
                    queue=queue_name(offering.queue),
                    priority=DRIFT_PRIORITY,
                )
            )
    return found


def entries(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the entries as Celery reads them in `beat_schedule`."""
    return {
        slot.name: {
            "task": slot.task,
            "schedule": slot.period_s,
            "args": (slot.offering_uuid,),
            "options": {"queue": slot.queue, "priority": slot.priority, "expires": slot.period_s},
        }
        for slot in slots(settings)
    }
