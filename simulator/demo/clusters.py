# SPDX-License-Identifier: MIT
"""Clusters that the demo can run on: the emulated SLURM, or the stand-in MAM, each with components of its kind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from simulator.demo import emulator, parts
from simulator.mam.install import StandIn
from simulator.world.seed import DEFAULT_COMPONENTS, ComponentSpec, Scenario

# Settings of the backend, and what its programs need in their environment.
Started = tuple[dict[str, Any], dict[str, str]]
SCENARIO: dict[str, Any] = {"customers": 2, "projects_per_customer": 1, "members_per_project": 4}


# EUR for an hour of a node, on MOAB.
PRICE = 10


@dataclass(frozen=True)
class EndedJob:
    """A job that had one node to itself: on the emulated SLURM 64 cores, 512 GB and 4 GPUs."""

    account: str
    user: str
    # In the zone of this machine, which it does not name.
    ended: datetime
    hours: int


@dataclass(frozen=True)
class DemoCluster:
    """A kind of cluster for the demo."""

    backend: str
    # For people, like the tool.
    title: str
    tool: str
    # Makes it in a folder.
    start: Callable[[parts.Children, Path], Started]
    # Lets jobs have run in the cluster of a folder.
    use: Callable[[Path, Sequence[EndedJob]], None]
    scenario: Scenario
    components: Mapping[str, Mapping[str, Any]]
    # Names with their limits.
    orders: Sequence[tuple[str, Mapping[str, int]]]
    # Raises DemoError where it cannot be made: before anything starts.
    require: Callable[[], None] = lambda: None


def _slurm(children: parts.Children, folder: Path) -> Started:
    commands = parts.start_emulator(children, folder)
    settings = {
        "slurm_bin_path": str(commands),
        "default_account_policy": "none",
        "customer_prefix": "c_",
        "project_prefix": "p_",
    }
    return settings, emulator.environment(folder)


def _use_slurm(folder: Path, jobs: Sequence[EndedJob]) -> None:
    """Raise DemoError where the emulator runs none. A clock of its own: that of the cluster goes on."""
    lines = [
        f"time_set {job.ended:%Y-%m-%dT%H:%M:%S}\nusage_inject {job.user} {job.hours} {job.account}"
        for job in jobs
    ]
    clock = {emulator.CLOCK: str(folder / "jobs-time.json"), emulator.FOLLOWS_WALL: "0"}
    done = subprocess.run(
        [folder / parts.COMMANDS / "slurm-emulator"],
        input="\n".join([*lines, "quit\n"]),
        env={**os.environ, **emulator.environment(folder), **clock},
        capture_output=True,
        encoding="utf-8",
        check=False,
        start_new_session=True,  # Ctrl-C does not reach it
    )
    if done.returncode:
        raise parts.DemoError(f"the emulator runs no jobs: {done.stderr.strip()}")


def _moab(_: parts.Children, folder: Path) -> Started:
    return {"moab_bin_path": str(StandIn(folder / "mam").bin)}, {}


def _use_moab(folder: Path, jobs: Sequence[EndedJob]) -> None:
    mam = StandIn(folder / "mam")
    for job in jobs:
        mam.charge(job.account, job.user, f"{job.hours * PRICE}.00", job.ended)


SLURM = DemoCluster(
    require=parts.require_emulator,
    backend="slurm",
    title="the emulated SLURM",
    tool="sacctmgr",
    start=_slurm,
    use=_use_slurm,
    scenario=Scenario(
        **SCENARIO,
        components=(
            *(each for each in DEFAULT_COMPONENTS if each.type != "gpu"),
            ComponentSpec(type="gres/gpu", name="GPU", measured_unit="GPU-hours", unit_factor=60),
        ),
    ),
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
        ("Protein folding", {"cpu": 2000, "mem": 16000, "gres/gpu": 200}),
        ("Storm tracks", {"cpu": 8000, "mem": 64000}),
        ("Crystal growth", {"cpu": 1000, "mem": 8000}),
        ("Plasma edge", {"cpu": 4000, "mem": 32000, "gres/gpu": 400}),
        ("Soil moisture", {"cpu": 500, "mem": 4000}),
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
