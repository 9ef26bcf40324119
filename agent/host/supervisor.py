# SPDX-License-Identifier: MIT
"""Keep programs running in the foreground: start them in order, start again what ends, stop in reverse order."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from agent.core.backoff import Backoff
from agent.core.printable import ended_as
from agent.host import children, waiting
from agent.host.children import Stopped, StopRequest

RESTART = Backoff(base_s=1, cap_s=60, jitter=0)
# What ran for so long begins with the shortest wait again.
STEADY_S = 120.0
PAUSE_S = 0.1

# A line of a part, without its end.
Say = Callable[[str, str], None]


@dataclass(frozen=True)
class Part:
    """A program to keep running."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    # How long it may take to finish what it has begun.
    stop_timeout_s: float
    # Programs after it are started when this is so.
    ready: Callable[[], bool] = lambda: True


@dataclass(slots=True)
class _Running:
    """One part: its process, and when it is started next (monotonic seconds), after so many short lives."""

    part: Part
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    next_start_s: float = 0.0
    short_lives: int = 0
    readers: list[threading.Thread] = field(default_factory=list)


class Supervisor:
    """Runs `parts`, in the order in which they need each other. `say` gets each line of a part, and ours."""

    def __init__(self, parts: Sequence[Part], say: Say) -> None:
        self._running = [_Running(part) for part in parts]
        self._say = say

    def run(self, stop_request: StopRequest) -> None:
        """Run until a stop is asked for. Raises NeverCame when a part does not become ready at the start."""
        try:
            for each in self._running:
                waiting.wait_until(
                    each.part.name,
                    each.part.ready,
                    ended=partial(waiting.end_of, self._start(each)),
                    log=lambda: "its own lines are above",
                    say=lambda line: self._say("cluster", line),
                    pause=lambda: stop_request.pause(PAUSE_S),
                )
            self._say("cluster", f"{', '.join(each.part.name for each in self._running)} run")
            while True:
                stop_request.pause(PAUSE_S)
                for each in self._running:
                    self._look_after(each)
        except Stopped:
            self._say("cluster", "stopping: what has begun is finished first")
        finally:
            for each in reversed(self._running):
                self._stop(each)

    def _start(self, each: _Running) -> subprocess.Popen[bytes]:
        part = each.part
        each.process = children.start(part.argv, part.environment, subprocess.PIPE)
        each.started_s = time.monotonic()
        reader = threading.Thread(target=self._read, args=(part.name, each.process), daemon=True)
        each.readers.append(reader)
        reader.start()
        return each.process

    def _read(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._say(name, line.decode("utf-8", "replace").rstrip("\n"))

    def _look_after(self, each: _Running) -> None:
        """Start a part again when it has ended, the sooner the longer it ran."""
        now_s = time.monotonic()
        if each.process is None:
            if now_s >= each.next_start_s:
                self._start(each)
            return
        code = each.process.poll()
        if code is None:
            return
        each.process = None
        each.short_lives = 0 if now_s - each.started_s > STEADY_S else each.short_lives + 1
        wait_s = RESTART.wait_s(max(0, each.short_lives - 1))
        each.next_start_s = now_s + wait_s
        self._say("cluster", f"{each.part.name} {ended_as(code)}; started again in {wait_s:.0f} s")

    def _stop(self, each: _Running) -> None:
        process = each.process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(each.part.stop_timeout_s)
            except subprocess.TimeoutExpired:
                # Only itself: a command of the cluster that it has started goes on by itself and is not cut.
                self._say(
                    "cluster", f"{each.part.name} has not ended in {each.part.stop_timeout_s:.0f} s: killed"
                )
                process.kill()
                process.wait()
        for reader in each.readers[-1:]:
            reader.join(1)
