# SPDX-License-Identifier: MIT
"""Clusters that the demo can run on: the emulated SLURM, or the stand-in MAM, each with components of its kind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simulator.demo import emulator, parts
from simulator.mam.install import StandIn
from simulator.world.seed import ComponentSpec, Scenario

# Settings of the backend, and what its programs need in their environment.
Started = tuple[dict[str, Any], dict[str, str]]
SCENARIO: dict[str, Any] = {"customers": 2, "projects_per_customer": 1, "members_per_project": 4}


@dataclass(frozen=True)
class DemoCluster:
    """A kind of cluster for the demo."""

    backend: str
    # For people, like the tool.
    title: str
    tool: str
    # Makes it in a folder.
    start: Callable[[parts.Children, Path], Started]
    # Lets a job of a user have run in an account.
    use: Callable[[Path, str, str], None]
    scenario: Scenario
    components: Mapping[str, Mapping[str, Any]]
    # Names with their limits.
    orders: Sequence[tuple[str, Mapping[str, int]]]
    # Raises DemoError where it cannot be made: before anything starts.
    require: Callable[[], None] = lambda: None


def _slurm(children: parts.Children, folder: Path) -> Started:
    commands = parts.start_emulator(children, folder)
    settings = {"slurm_bin_path": str(commands), "default_account_policy": "none"}
    return settings, emulator.environment(folder)


def _use_slurm(folder: Path, account: str, user: str) -> None:
    """Let two hours on a node have ended: 128 core-hours. Raises DemoError."""
    done = subprocess.run(
        [folder / parts.COMMANDS / "slurm-emulator"],
        input=f"usage_inject {user} 2 {account}\nquit\n",
        env={**os.environ, **emulator.environment(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise parts.DemoError(f"the emulator runs no job of {user} in {account}: {done.stderr.strip()}")


def _moab(_: parts.Children, folder: Path) -> Started:
    return {"moab_bin_path": str(StandIn(folder / "mam").bin)}, {}


def _use_moab(folder: Path, account: str, user: str) -> None:
    StandIn(folder / "mam").charge(account, user, "128.00", datetime.now(UTC))


SLURM = DemoCluster(
    require=parts.require_emulator,
    backend="slurm",
    title="the emulated SLURM",
    tool="sacctmgr",
    start=_slurm,
    use=_use_slurm,
    scenario=Scenario(**SCENARIO),
    components={
        "cpu": {"measured_unit": "core-hours", "accounting_type": "limit", "label": "CPU", "unit_factor": 60},
        "mem": {
            "measured_unit": "GB-hours",
            "accounting_type": "limit",
            "label": "Memory",
            "unit_factor": 61440,
        },
        "gres/gpu": {
            "measured_unit": "GPU-hours",
            "accounting_type": "limit",
            "label": "GPU",
            "unit_factor": 60,
        },
    },
    orders=(
        ("Protein folding", {"cpu": 2000, "mem": 4000, "gres/gpu": 100}),
        ("Storm tracks", {"cpu": 8000, "mem": 16000}),
        ("Crystal growth", {"cpu": 1000, "mem": 2000}),
        ("Plasma edge", {"cpu": 4000, "mem": 8000, "gres/gpu": 400}),
        ("Soil moisture", {"cpu": 500, "mem": 1000}),
    ),
)
MOAB = DemoCluster(
    backend="moab",
    title="the stand-in MAM",
    tool="mam-deposit",
    start=_moab,
    use=_use_moab,
    scenario=Scenario(
        **SCENARIO,
        components=(ComponentSpec(type="deposit", name="Deposit (EUR)", measured_unit="EUR"),),
        allocation_limits={"deposit": 100},
    ),
    components={
        "deposit": {"measured_unit": "EUR", "accounting_type": "limit", "label": "Deposit (EUR)"},
    },
    orders=(
        ("Protein folding", {"deposit": 2000}),
        ("Storm tracks", {"deposit": 8000}),
        ("Crystal growth", {"deposit": 1000}),
        ("Plasma edge", {"deposit": 4000}),
        ("Soil moisture", {"deposit": 500}),
    ),
)
CLUSTERS = {cluster.backend: cluster for cluster in (SLURM, MOAB)}
