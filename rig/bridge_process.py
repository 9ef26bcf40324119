# SPDX-License-Identifier: MIT
"""The bridge as its own process: `manage.py bridge`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from rig import warm_python
from rig.operator_process import OperatorProcess
from rig.processes import REPOSITORY

LISTENS = "events "


class BridgeProcess(OperatorProcess):
    """The bridge, or what `python` is called with in its place. `is_real`: started as an operator starts it."""

    def __init__(self, log: Path, env: Mapping[str, str], *command: str, is_real: bool = False) -> None:
        words = command or (str(REPOSITORY / "manage.py"), "bridge")
        if is_real:
            super().__init__((sys.executable, *words), log, env, ready=LISTENS, stop_s=600)
        else:
            super().__init__(words, log, env, ready=LISTENS, stop_s=600, python=warm_python.of_commands())
