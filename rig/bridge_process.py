# SPDX-License-Identifier: MIT
"""The bridge as its own process, as an operator starts it: `manage.py bridge`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from rig.operator_process import OperatorProcess
from rig.processes import REPOSITORY

LISTENS = "events "


class BridgeProcess(OperatorProcess):
    """The bridge, or a `command` in its place."""

    def __init__(self, log: Path, env: Mapping[str, str], *command: str) -> None:
        usual = (sys.executable, str(REPOSITORY / "manage.py"), "bridge")
        super().__init__(command or usual, log, env, ready=LISTENS, stop_s=30)
