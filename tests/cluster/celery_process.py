# SPDX-License-Identifier: MIT
"""A worker, beat or Flower as its own process, as an operator starts it: `celery -A tasks ...`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.real import processes
from tests.real.processes import tail, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
READY = {"worker": " ready.", "beat": " is starting.", "flower": "Visit me at"}


class CeleryProcess:
    """One process of the cluster; `stop` and `kill` go to the pid that was started."""

    def __init__(self, role: str, log: Path, env: Mapping[str, str], *args: str) -> None:
        self.role = role
        self.log = log
        self._args = args
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> CeleryProcess:
        seen = len(tail(self.log, 10**9))
        command = [sys.executable, "-m", "celery", "-A", "tasks", self.role, *self._args]
        self._process = processes.start(command, log=self.log, env=self._env)
        if wait:
            wait_until(
                f"{self.role} ready",
                lambda: READY[self.role] in tail(self.log, 10**9)[seen:] or self.process.poll() is not None,
                30,
            )
            assert self.process.poll() is None, tail(self.log)
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """SIGKILL the main process; its pool children die with it."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        processes.stop(self._process, timeout_s=40)

    def output(self) -> str:
        return tail(self.log, 10**9)


def environment(config: Path, broker_url: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a unit file would set, and what this test run needs."""
    return {
        **os.environ,
        "WALDUR_SITE_AGENT_CONFIG": str(config),
        "WALDUR_SITE_AGENT_BROKER_URL": broker_url,
        "PYTHONPATH": str(REPOSITORY),
        **(extra or {}),
    }
