# SPDX-License-Identifier: MIT
"""The bridge as its own process, as an operator starts it: `manage.py bridge`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.celery_process import REPOSITORY
from tests.real import processes
from tests.real.processes import tail, wait_until

LISTENS = "events "


class BridgeProcess:
    """`stop` and `kill` go to the pid that was started."""

    def __init__(self, log: Path, env: Mapping[str, str], *command: str) -> None:
        self.log = log
        self._env = dict(env)
        self._command = command or (sys.executable, str(REPOSITORY / "manage.py"), "bridge")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> BridgeProcess:
        seen = len(tail(self.log, 10**9))
        self._process = processes.start(self._command, log=self.log, env=self._env)
        if wait:
            wait_until(
                "the bridge listens",
                lambda: LISTENS in tail(self.log, 10**9)[seen:] or self.process.poll() is not None,
                30,
            )
            assert self.process.poll() is None, tail(self.log)
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        processes.stop(self._process, timeout_s=30)

    def output(self) -> str:
        return tail(self.log, 10**9)
