# SPDX-License-Identifier: MIT
"""Messages that came and are not in the queue of tasks yet. Their number is bounded by what brokers hand out
unacknowledged; for messages that cannot be acknowledged (MQTT at QoS 0) by a number, and then a gap is noted instead.
"""

from __future__ import annotations

import queue
import threading
import time

from agent.bridge.decode import MAX_BYTES
from agent.bridge.model import Gap, Received

# Of all sources together; brokers hand out no more than this before an acknowledgement.
UNACKNOWLEDGED_AT_MOST = 2000
PER_SOURCE_AT_MOST = 50
# Messages without acknowledgement.
VOLATILE_AT_MOST = 2000
# What is kept of a message that is too large to be one.
HEAD_BYTES = 4096


class Inbox:
    """Filled by the connections, emptied by one dispatcher."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[tuple[float, Received | Gap | None]] = queue.SimpleQueue()
        # When that came, monotonic, which the dispatcher has in hand: nothing in the inbox is older.
        self._in_hand_s: float | None = None
        self._gaps: set[str] = set()
        self._lock = threading.Lock()

    def put(self, received: Received) -> None:
        self._put(received)

    def put_volatile(self, received: Received) -> bool:
        """Add a message that no broker keeps. Without room it is dropped, a gap noted, and False returned."""
        if self._items.qsize() >= VOLATILE_AT_MOST:
            self.put_gap(Gap(received.source.offering_uuid, "more came than could be queued"))
            return False
        self._put(received)
        return True

    def put_gap(self, gap: Gap) -> None:
        """Add a gap, unless one of its offering waits already."""
        with self._lock:
            if gap.offering_uuid in self._gaps:
                return
            self._gaps.add(gap.offering_uuid)
        self._put(gap)

    def get(self) -> Received | Gap | None:
        """Wait for the next item and return it; None once `end` was called and everything before it was taken."""
        self._in_hand_s = None
        self._in_hand_s, item = self._items.get()
        if isinstance(item, Gap):
            with self._lock:
                self._gaps.discard(item.offering_uuid)
        return item

    def end(self) -> None:
        self._put(None)

    def lag_s(self) -> float:
        """Return the age of what came first and is not queued as a task yet; 0 when there is nothing."""
        since_s = self._in_hand_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def _put(self, item: Received | Gap | None) -> None:
        self._items.put((time.monotonic(), item))

    def __len__(self) -> int:
        return self._items.qsize()


def prefetch(sources: int) -> int:
    """Return how many messages a source may have on their way to us, so that all together stay bounded."""
    return max(1, min(PER_SOURCE_AT_MOST, UNACKNOWLEDGED_AT_MOST // max(1, sources)))


def cut(body: bytes) -> bytes:
    """Return the body, only its beginning where it is too large for a message."""
    return body if len(body) <= MAX_BYTES else body[:HEAD_BYTES]
