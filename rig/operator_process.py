# SPDX-License-Identifier: MIT
"""A process of ours, started as an operator starts it; `stop` and `kill` go to the pid that was started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from rig import processes
from rig.processes import tail, wait_until


class OperatorProcess:
    """`ready` is the text in its log that says it is ready."""

    def __init__(
        self, command: Sequence[str], log: Path, env: Mapping[str, str], *, ready: str, stop_s: float
    ) -> None:
        self.log = log
        self._command = command
        self._env = dict(env)
        self._ready = ready
        self._stop_s = stop_s
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> Self:
        seen = len(tail(self.log, 10**9))
        self._process = processes.start(self._command, log=self.log, env=self._env)
        if wait:
            wait_until(
                f"{self._ready!r} in {self.log.name}",
                lambda: self._ready in tail(self.log, 10**9)[seen:] or self.process.poll() is not None,
            )
            assert self.process.poll() is None, tail(self.log)
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """SIGKILL the main process; the children of a pool die with it."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        processes.stop(self._process, timeout_s=self._stop_s)

    def output(self) -> str:
        return tail(self.log, 10**9)
