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


class _Queue(PriorityQueue[Any]):
    """`queue.Queue` has these two for what is kept in another order."""

    def _put(self, item: Any) -> None:
        super()._put((int(item["properties"].get("priority") or 0), next(_numbers), item))

    def _get(self) -> Any:
        return super()._get()[2]


class _Channel(memory.Channel):
    # Of all channels of the process, and by this name, as kombu's.
    queues: ClassVar[dict[str, _Queue]] = {}

    def waits(self, queue: str, below: int) -> bool:
        """Return whether a message of a priority number below this one waits."""
        with (found := self._queue_for(queue)).mutex:
            return any(priority < below for priority, _, _ in found.queue)

    def _queue_for(self, queue: str) -> _Queue:
        return self.queues.setdefault(queue, _Queue())

    def _new_queue(self, queue: str, **_: Any) -> None:
        self._queue_for(queue)


class Transport(memory.Transport):
    Channel = _Channel
