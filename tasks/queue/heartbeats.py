# SPDX-License-Identifier: MIT
"""Heartbeats among the records of the queue: of bridges, which modes of an offering need no short polls for now; and of
beat.

They are counted: a count that does not grow says that Redis has lost data, queued tasks as well. With a broker that
keeps no records there are no heartbeats, and all polls run.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

from agent.config.model import Mode
from agent.run.service import event_coverage
from tasks.queue.stores import Record, Step, Store, as_it_is

# Names of records.
BEAT, HEARTBEAT, COUNT = "beat:", "heartbeat:", "heartbeat-count:"
COUNT_TTL_S = 86_400.0


def send_heartbeat(store: Store, offering_uuid: str, modes: Iterable[Mode]) -> int:
    """Report to beat which modes events cover. Return how many heartbeats of the offering were counted, of all bridges;
    0 where none are kept. Raises QueueUnavailable.
    """
    if not store.knows_queue:
        return 0

    def counted(record: Record | None) -> Step[int]:
        count = int((record or {}).get("count", 0)) + 1
        return Step({"count": count}, count, COUNT_TTL_S)

    covered = {"modes": sorted(modes)}
    store.update(HEARTBEAT + offering_uuid, lambda _: Step(covered, None, event_coverage.HEARTBEAT_VALID_S))
    return store.update(COUNT + offering_uuid, counted)


def covered_modes(store: Store, offering_uuid: str) -> frozenset[Mode]:
    """Return the modes whose events a bridge listens to now. Raises QueueUnavailable."""
    covered = store.update(HEARTBEAT + offering_uuid, as_it_is) if store.knows_queue else None
    return frozenset(mode for mode in Mode if mode in (covered or {}).get("modes", ()))


def beats(store: Store) -> tuple[str, ...] | None:
    """Return beats that ran lately, as host:pid; None where no heartbeats are kept. Raises QueueUnavailable."""
    if not store.knows_queue:
        return None
    return tuple(sorted(name.removeprefix(BEAT) for name in store.names(BEAT)))


def note_beat(store: Store) -> None:
    """Note that beat runs in this process. Raises QueueUnavailable."""
    if store.knows_queue:
        name = f"{BEAT}{socket.gethostname()}:{os.getpid()}"
        store.update(name, lambda _: Step({}, None, event_coverage.HEARTBEAT_VALID_S))
