# SPDX-License-Identifier: MIT
"""A process of ours that does what it does when an operator starts it; `stop` and `kill` go to the pid that was
started.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from rig import processes
from rig.child_process import is_alive
from rig.processes import tail, wait_until
from rig.reaper import descendants
from rig.warm_python import WarmProcess, WarmPython


class OperatorProcess:
    """`ready` is the text in its log that says it is ready. With `python` it is a fork of that one, which its command
    does not name.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str],
        *,
        ready: str,
        stop_s: float,
        python: WarmPython | None = None,
    ) -> None:
        self.log = log
        self._command = command
        self._env = dict(env)
        self._ready = ready
        self._stop_s = stop_s
        self._python = python
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None

    def start(self, *, wait: bool = True) -> Self:
        seen = len(tail(self.log, 10**9))
        start = self._python.popen if self._python else processes.start
        self._process = start(self._command, log=self.log, env=self._env)
        if wait:
            wait_until(
                f"{self._ready!r} in {self.log.name}",
                lambda: self._ready in tail(self.log, 10**9)[seen:],
                self._process,
                self.log,
            )
        return self

    @property
    def process(self) -> subprocess.Popen[bytes] | WarmProcess:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """SIGKILL the main process; the children of a pool die with it."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        processes.stop(self._process, timeout_s=self._stop_s)

    def end(self) -> None:
        """End it as fast as can be, when nothing more is asked of it; commands that it has begun come to their end.
        Under `make coverage` it is stopped: what is killed does not write which lines it has run.
        """
        if self._process is not None and self._process.poll() is None:
            begun = descendants(self._process.pid)
            if processes.coverage():
                self.stop()
            else:
                self.kill()
            wait_until("the end of its commands", lambda: not any(map(is_alive, begun)))

    def output(self) -> str:
        return tail(self.log, 10**9)
