# SPDX-License-Identifier: MIT
"""Work the server does after answering: jobs with a due time, run before the next look at the state.

Nothing runs on a timer: whoever reads or writes the store first runs what has fallen due, so a test
that moves the clock sees the same world as one that waits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

from simulator.world.clock import SimClock

Job = Callable[[], None]


class Background:
    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._jobs: list[tuple[datetime, int, Job]] = []
        self._ticket = count()

    def schedule(self, delay_s: float, job: Job) -> None:
        due = self._clock.now() + timedelta(seconds=delay_s)
        heapq.heappush(self._jobs, (due, next(self._ticket), job))

    def run_due(self) -> int:
        return self._run(lambda due: due <= self._clock.now())

    def run_all(self) -> int:
        return self._run(lambda _: True)

    def pending(self) -> int:
        return len(self._jobs)

    def _run(self, is_wanted: Callable[[datetime], bool]) -> int:
        done = 0
        while self._jobs and is_wanted(self._jobs[0][0]):
            _, _, job = heapq.heappop(self._jobs)
            job()
            done += 1
        return done
