# SPDX-License-Identifier: MIT
"""kombu's transport in the memory of this process, the most urgent message first, and of those the oldest.

Numbers of priorities are those of beat_schedule: 0 is first.
"""

from __future__ import annotations

import itertools
from queue import PriorityQueue
from typing import Any, ClassVar

from kombu.transport import memory

_numbers = itertools.count()


class _Channel(memory.Channel):
    # Of all channels of the process, as kombu's.
    queues: ClassVar[dict[str, PriorityQueue[tuple[int, int, Any]]]] = {}

    def waits(self, queue: str, below: int) -> bool:
        """Return whether a message of a priority number below this one waits."""
        with (found := self._queue_for(queue)).mutex:
            return any(priority < below for priority, _, _ in found.queue)

    def _queue_for(self, queue: str) -> PriorityQueue[tuple[int, int, Any]]:
        return self.queues.setdefault(queue, PriorityQueue())

    def _new_queue(self, queue: str, **_: Any) -> None:
        self._queue_for(queue)

    def _put(self, queue: str, message: Any, **_: Any) -> None:
        self._queue_for(queue).put((self._get_message_priority(message), next(_numbers), message))

    def _put_fanout(self, exchange: str, message: Any, routing_key: str | None = None, **_: Any) -> None:
        for queue in self._lookup(exchange, routing_key):
            self._put(queue, message)

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        return self._queue_for(queue).get(block=False)[2]


class Transport(memory.Transport):
    Channel = _Channel
