# SPDX-License-Identifier: MIT
"""A stand-in for the real SLURM where none is installed: tests of the queue ask little of it.

What it cannot do skips the test that asks for it, with the name of what is missing.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from rig.emulator import emulated_cluster
from rig.parts import require
from rig.slurm_cluster import SlurmCluster

CLUSTER = "default"  # as the queue of an offering that names no cluster


class EmulatedSlurm:
    def __init__(self, folder: Path) -> None:
        self._programs, state = emulated_cluster(folder)
        self.variables = {**state, "SLURM_EMULATOR_CLUSTER_NAME": CLUSTER}
        self.settings: dict[str, Any] = {
            "slurm_bin_path": str(self._programs),
            "cluster_name": CLUSTER,
            "enable_user_homedir_account_creation": False,
        }

    def ask(self, *argv: str) -> str:
        """The output of a command that must succeed."""
        return subprocess.run(
            [str(self._programs / argv[0]), *argv[1:]],
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        ).stdout

    def __getattr__(self, name: str) -> Any:
        require("slurm")
        raise AttributeError(name)


def variables(slurm: SlurmCluster | EmulatedSlurm) -> dict[str, str]:
    """What leads the commands of a worker to this cluster."""
    if isinstance(slurm, EmulatedSlurm):
        return slurm.variables
    return {"SLURM_CONF": slurm.env["SLURM_CONF"]}


def settings(slurm: SlurmCluster | EmulatedSlurm) -> dict[str, Any]:
    """Settings of the backend for this cluster."""
    return slurm.settings if isinstance(slurm, EmulatedSlurm) else {}
