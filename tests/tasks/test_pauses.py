# SPDX-License-Identifier: MIT
"""What waited for the end of a pause needs neither beat nor an event: the passes are queued."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.state import pauses
from rig.celery_process import environment
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.site import configuration, settings_of
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState
from tests.agent.cli.operator_site import run_program
from tests.tasks.conftest import Start
from tests.tasks.emulated import EmulatedSlurm, settings

AWAY = "redis://127.0.0.1:1/0"
QUEUE_PASSES = "import tasks.celery; from tasks import pauses; pauses.queue_passes(['site.default'])"


@pytest.fixture
def slurm(tmp_path: Path) -> EmulatedSlurm:
    return EmulatedSlurm(tmp_path)


@pytest.fixture
def config(slurm: EmulatedSlurm, waldur: SimulatedWaldur, tmp_path: Path) -> Path:
    return configuration(waldur, tmp_path, backend=settings(slurm), stomp_enabled=True)


def test_a_command_that_ends_a_pause_queues_them(
    start: Start, config: Path, waldur: SimulatedWaldur, redis_server: RedisServer
) -> None:
    env = environment(config, redis_server.url)
    offering = waldur.seed.offering_uuid
    assert run_program("pause", offering, "-c", str(config), env=env).code == 0
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "One", limits={"cpu": 10})
    start("worker", "-c", "1")
    assert run_program("pause", offering, "--off", "-c", str(config), env=env).code == 0
    wait_until("the order is done", lambda: waldur.order(order).state is OrderState.DONE)


def test_a_worker_that_was_not_there_when_a_pause_ended_queues_them_once(
    start: Start, config: Path, waldur: SimulatedWaldur
) -> None:
    read = settings_of(config)
    pauses.pause(read.state_dir, read.offerings[0], by="ann", until=datetime.now(UTC))
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "One", limits={"cpu": 10})
    start("worker", "-c", "1")
    wait_until("the order is done", lambda: waldur.order(order).state is OrderState.DONE)
    wait_until("the pause is forgotten", lambda: not pauses.ended(read.state_dir))


@pytest.mark.parametrize(("room_bytes", "left"), [(1, 1), (0, 0)], ids=["it is full", "it takes them"])
def test_the_end_of_a_pause_is_remembered_until_the_broker_has_them(
    config: Path, redis_server: RedisServer, room_bytes: int, left: int
) -> None:
    redis_server.flush()
    read = settings_of(config)
    pauses.pause(read.state_dir, read.offerings[0], by="ann", until=datetime.now(UTC))
    assert queue_passes(config, AWAY) == 1
    redis_server.command(f"CONFIG SET maxmemory {room_bytes}")
    try:
        assert queue_passes(config, redis_server.url) == left
    finally:
        redis_server.command("CONFIG SET maxmemory 0")
    assert redis_server.command("LLEN site.default") == b":%d\r\n" % (1 - left)


def queue_passes(config: Path, broker_url: str) -> int:
    """Look at the pauses as a worker does, and return how many have ended and are remembered."""
    subprocess.run(
        [python(), "-c", QUEUE_PASSES], env=environment(config, broker_url), check=True, timeout=600
    )
    return len(pauses.ended(settings_of(config).state_dir))
