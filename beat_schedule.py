# SPDX-License-Identifier: MIT
"""Compute the beat table: offerings and periods in, Celery beat entries out. Pure; decides only when tasks run.

An entry exists for every mode that an offering has a backend for. It expires after one period: a pass that
no worker took in that time is replaced by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.config.model import Mode, Offering, Settings

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
HIGHEST = 9
STEPS = tuple(sorted({*PRIORITY_OF.values(), EVENT_PRIORITY, BACKFILL_PRIORITY}))
SEPARATOR = ":"

# The drift report of an offering: once an hour, after everything else.
DRIFT_TASK = "drift.report"
DRIFT_PERIOD_S = 3600.0
DRIFT_PRIORITY = 8


def queue_name(queue: str) -> str:
    """Return the name of the queue that the workers of one head node read."""
    return f"site.{queue}"


def priority_key(queue: str, step: int) -> str:
    """Return the key of a queue's messages of one priority in Redis, as Celery documents it (Routing Tasks, Redis)."""
    return f"{queue}{SEPARATOR}{step}" if step else queue


def polled(task: str, offering_uuid: str) -> str:
    """Return the name by which the work queue knows that a periodic task of an offering waits."""
    return f"polled:{task}:{offering_uuid}"


def all_modes(_offering: Offering) -> frozenset[Mode]:
    """Return every mode: a beat starts all that the configuration has a backend for."""
    return frozenset(Mode)


def slots(settings: Settings, modes_of: Callable[[Offering], frozenset[Mode]] = all_modes) -> list[Slot]:
    """Return the passes of every offering, then the drift reports of those with a mode that changes the cluster.
    `modes_of`: the modes that are started here; drift is of all those that change the cluster, or not reported.
    """
    wanted = {
        offering.uuid: {m for m in TASK_OF if offering.backend_of(m) and m not in offering.stopped}
        for offering in settings.offerings
    }
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
        if mode in wanted[offering.uuid] & modes_of(offering)
    ]
    for offering in settings.offerings:
        steering = wanted[offering.uuid].intersection(STEERING)
        if steering and steering <= modes_of(offering):
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


def entries(
    settings: Settings,
    modes_of: Callable[[Offering], frozenset[Mode]] = all_modes,
    counted: Callable[[int], int] = lambda priority: priority,
) -> dict[str, dict[str, Any]]:
    """Return the entries as Celery reads them in `beat_schedule`. `counted`: a priority as the broker counts."""
    return {
        slot.name: {
            "task": slot.task,
            "schedule": slot.period_s,
            "args": (slot.offering_uuid,),
            "options": {
                "queue": slot.queue,
                "priority": counted(slot.priority),
                "expires": slot.period_s,
            },
        }
        for slot in slots(settings, modes_of)
    }
