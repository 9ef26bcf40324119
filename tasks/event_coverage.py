# SPDX-License-Identifier: MIT
"""Heartbeats in the broker's Redis: of bridges, which modes of an offering need no short polls for now; and of beat.

Redis counts them: a count that does not grow says that Redis has lost data, queued tasks as well. With another broker
there are no heartbeats, and all polls run.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable

from redis import RedisError

from agent.config.model import Mode
from agent.core.events import QueueUnavailable
from agent.run import event_coverage
from tasks import broker

# Of a bridge in this process: until which monotonic second they count, and the modes. The queue is here, too: it can
# lose nothing that the bridge would not lose with it.
_here: dict[str, tuple[float, frozenset[Mode]]] = {}
BEAT = "site-beat:"
HEARTBEAT, COUNT = "site-heartbeat:", "site-heartbeat-count:"
COUNT_TTL_S = 86_400


def send_heartbeat(offering_uuid: str, modes: Iterable[Mode]) -> int:
    """Tell beat which modes events cover. Return how many heartbeats of the offering Redis has counted, of all bridges;
    0 with another broker. Raises QueueUnavailable.
    """
    if broker.is_embedded():
        _here[offering_uuid] = (time.monotonic() + event_coverage.HEARTBEAT_VALID_S, frozenset(modes))
    if not broker.uses_redis():
        return 0
    covered, key = ",".join(sorted(modes)), COUNT + offering_uuid
    try:
        pipeline = broker.client().pipeline()
        pipeline.incr(key).expire(key, COUNT_TTL_S)
        pipeline.set(HEARTBEAT + offering_uuid, covered, px=int(1000 * event_coverage.HEARTBEAT_VALID_S))
        return int(pipeline.execute()[0])
    except RedisError as error:
        raise QueueUnavailable(f"no heartbeat: {error}") from error


def covered_modes(offering_uuid: str) -> frozenset[Mode]:
    """Return the modes whose events a bridge listens to now. Raises RedisError."""
    if not broker.uses_redis():
        until_s, modes = _here.get(offering_uuid, (0.0, frozenset()))
        return modes if time.monotonic() < until_s else frozenset()
    covered = (broker.client().get(HEARTBEAT + offering_uuid) or b"").decode().split(",")
    return frozenset(mode for mode in Mode if mode in covered)


def note_beat() -> None:
    """Note that beat runs in this process. Raises RedisError."""
    if broker.uses_redis():
        key = f"{BEAT}{socket.gethostname()}:{os.getpid()}"
        broker.client().set(key, "1", px=int(1000 * event_coverage.HEARTBEAT_VALID_S))
