# SPDX-License-Identifier: MIT
"""A site whose processes a test starts: simulated Waldur, real SLURM, real Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.sim.server import SimulatedWaldur
from tests.cluster.celery_process import CeleryProcess, environment
from tests.real.redis_server import RedisServer
from tests.real.slurm_cluster import SlurmCluster
from tests.site import configuration

Start = Callable[..., CeleryProcess]


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur() as server:
        yield server


@pytest.fixture
def config(waldur: SimulatedWaldur, tmp_path: Path) -> Path:
    return configuration(waldur, tmp_path)


@pytest.fixture
def start(slurm: SlurmCluster, redis_server: RedisServer, config: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a role of the cluster; all are stopped at the end, and their logs shown when the test fails."""
    redis_server.flush()
    running: list[CeleryProcess] = []

    def make(role: str, *args: str, minutes: float = 0.05, wait: bool = True) -> CeleryProcess:
        variables = {
            "SLURM_CONF": slurm.env["SLURM_CONF"],
            "WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES": str(minutes),
            "WALDUR_SITE_AGENT_MEMBERSHIP_SYNC_PERIOD_MINUTES": str(minutes),
        }
        env = environment(config, redis_server.url, variables)
        process = CeleryProcess(role, tmp_path / f"{role}-{len(running)}.log", env, *args)
        running.append(process)
        return process.start(wait=wait)

    yield make
    for process in reversed(running):
        process.stop()
        print(process.output())
