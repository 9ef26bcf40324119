# SPDX-License-Identifier: MIT
"""A worker, beat or Flower as its own process, as an operator starts it: `celery -A tasks ...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rig import warm_python
from rig.operator_process import OperatorProcess
from rig.processes import REPOSITORY

READY = {"worker": " ready.", "beat": " is starting.", "flower": "Visit me at"}


class CeleryProcess(OperatorProcess):
    """One process of the cluster. `is_real`: started as an operator starts it; Flower always is. Other workers look for
    no neighbours, which takes a second.
    """

    def __init__(
        self, role: str, log: Path, env: Mapping[str, str], *args: str, is_real: bool = False
    ) -> None:
        self.role = role
        command = ["-m", "celery", "-A", "tasks", role, *args]
        if is_real or role == "flower":
            super().__init__([sys.executable, *command], log, env, ready=READY[role], stop_s=120)
        else:
            if role == "worker":
                command += ["--without-mingle", "--without-gossip"]
            super().__init__(
                command, log, env, ready=READY[role], stop_s=120, python=warm_python.of_workers()
            )


def environment(config: Path, broker_url: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment that a unit file would set, and what this test run needs."""
    return {
        **os.environ,
        "WALDUR_SITE_AGENT_CONFIG": str(config),
        "WALDUR_SITE_AGENT_BROKER_URL": broker_url,
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONUNBUFFERED": "1",  # beat says through a buffer that it starts
        **(extra or {}),
    }
