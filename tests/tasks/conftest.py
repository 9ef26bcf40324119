# SPDX-License-Identifier: MIT
"""A site whose processes a test starts: simulated Waldur, real Redis, and a real SLURM where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rig.celery_process import CeleryProcess, environment
from rig.parts import REQUIRED, missing_programs
from rig.rabbitmq import ADMIN, PASSWORD, RabbitMq
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.tasks.emulated import EmulatedSlurm, settings, variables

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
    """Start a role of the cluster; all are stopped at the end, and their logs printed when the test fails."""
    redis_server.flush()
    running: list[CeleryProcess] = []

    def make(
        role: str, *args: str, minutes: float = 0.05, wait: bool = True, is_real: bool = False
    ) -> CeleryProcess:
        periods = {
            "WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES": str(minutes),
            "WALDUR_SITE_AGENT_MEMBERSHIP_SYNC_PERIOD_MINUTES": str(minutes),
        }
        env = environment(config, redis_server.url, {**variables(slurm), **periods})
        process = CeleryProcess(role, tmp_path / f"{role}-{len(running)}.log", env, *args, is_real=is_real)
        running.append(process)
        return process.start(wait=wait)

    yield make
    for process in reversed(running):
        process.end()
        print(process.output())


@pytest.fixture(params=["redis", "rabbitmq"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """A broker with nothing in the queue of the site: each kind that sites run."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.flush()
        return server.url
    rabbitmq: RabbitMq = request.getfixturevalue("rabbitmq")
    rabbitmq.ask("DELETE", "queues/%2F/site.default")
    return f"amqp://{ADMIN}:{PASSWORD}@127.0.0.1:{rabbitmq.ports['amqp']}//"
