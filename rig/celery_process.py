# SPDX-License-Identifier: MIT
"""A worker, beat or Flower as its own process, as an operator starts it: `celery -A tasks ...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rig.operator_process import OperatorProcess
from rig.processes import REPOSITORY

READY = {"worker": " ready.", "beat": " is starting.", "flower": "Visit me at"}


class CeleryProcess(OperatorProcess):
    """One process of the cluster."""

    def __init__(self, role: str, log: Path, env: Mapping[str, str], *args: str) -> None:
        self.role = role
        command = [sys.executable, "-m", "celery", "-A", "tasks", role, *args]
        super().__init__(command, log, env, ready=READY[role], stop_s=40)


def environment(config: Path, broker_url: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment that a unit file would set, and what this test run needs."""
    return {
        **os.environ,
        "WALDUR_SITE_AGENT_CONFIG": str(config),
        "WALDUR_SITE_AGENT_BROKER_URL": broker_url,
        "PYTHONPATH": str(REPOSITORY),
        **(extra or {}),
    }
