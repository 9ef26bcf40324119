# SPDX-License-Identifier: MIT
"""A site whose processes a test starts: simulated Waldur, real Redis, and a real SLURM where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rig.celery_process import CeleryProcess, environment
from rig.parts import REQUIRED, missing_programs
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.cluster.emulated import EmulatedSlurm, settings, variables

Start = Callable[..., CeleryProcess]


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur() as server:
        yield server


@pytest.fixture
def slurm(request: pytest.FixtureRequest, tmp_path: Path) -> SlurmCluster | EmulatedSlurm:
    """The real SLURM with nothing in it; where it is missing, and may be, the emulator."""
    if missing_programs("slurm") and not REQUIRED:
        return EmulatedSlurm(tmp_path)
    cluster: SlurmCluster = request.getfixturevalue("slurm_cluster")
    cluster.reset()
    return cluster


@pytest.fixture
def config(slurm: SlurmCluster | EmulatedSlurm, waldur: SimulatedWaldur, tmp_path: Path) -> Path:
    return configuration(waldur, tmp_path, backend=settings(slurm))


@pytest.fixture
def start(
    slurm: SlurmCluster | EmulatedSlurm, redis_server: RedisServer, config: Path, tmp_path: Path
) -> Iterator[Start]:
    """Start a role of the cluster; all are stopped at the end, and their logs shown when the test fails."""
    redis_server.flush()
    running: list[CeleryProcess] = []

    def make(role: str, *args: str, minutes: float = 0.05, wait: bool = True) -> CeleryProcess:
        periods = {
            "WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES": str(minutes),
            "WALDUR_SITE_AGENT_MEMBERSHIP_SYNC_PERIOD_MINUTES": str(minutes),
        }
        env = environment(config, redis_server.url, {**variables(slurm), **periods})
        process = CeleryProcess(role, tmp_path / f"{role}-{len(running)}.log", env, *args)
        running.append(process)
        return process.start(wait=wait)

    yield make
    for process in reversed(running):
        process.stop()
        print(process.output())
