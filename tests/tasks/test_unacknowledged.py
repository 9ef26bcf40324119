# SPDX-License-Identifier: MIT
"""Tasks of a killed worker: those that it ran and those that it held until their time are back when it starts again.

No beat runs here. Redis would give them back after the visibility timeout: fifteen minutes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import redis

from rig.celery_process import REPOSITORY, CeleryProcess, environment
from rig.processes import wait_until
from rig.site import configuration
from rig.warm_python import python
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tasks.limits import VISIBILITY_TIMEOUT_S
from tests.tasks.emulated import EmulatedSlurm, settings, variables

pytestmark = pytest.mark.real_part
ORDERS = 4
# The first message is held until its time, long after this test.
SEND = """
import sys
from tasks.orders import enqueue_orders, events
events.apply_async(sys.argv[1:], queue="site.default", countdown=300)
enqueue_orders(sys.argv[1])
"""


def test_they_are_back_when_the_worker_is(broker_url: str, tmp_path: Path) -> None:
    assert VISIBILITY_TIMEOUT_S > 600, "or its end could be what brings them back"
    slurm = EmulatedSlurm(tmp_path)
    with SimulatedWaldur(scenario=Scenario(members_per_project=0)) as waldur:
        env = environment(
            configuration(waldur, tmp_path, backend=settings(slurm)), broker_url, variables(slurm)
        )
        project = waldur.seed.project_uuids[0]
        orders = [
            waldur.place_create_order(project, f"o{n}", limits={"cpu": 10}, slug=f"o{n}")
            for n in range(ORDERS)
        ]
        command = [python(), "-c", SEND, waldur.seed.offering_uuid]
        subprocess.run(command, env=env, cwd=REPOSITORY, check=True)
        held_up = Fault(kind=FaultKind.DELAY, path="set_backend_id|set_state", latency_ms=30_000, times=None)
        waldur.inject(held_up)
        worker = CeleryProcess("worker", tmp_path / "worker.log", env)
        try:
            worker.start()
            wait_until("one is under way", lambda: "executing" in states(waldur, orders))
            worker.kill()
            held = unacknowledged(broker_url)
            assert held is None or held >= 2, "one is at work, one waits for its time"
            waldur.faults.clear()
            worker.start()
            wait_until("all that are due are done", lambda: states(waldur, orders) == {"done"})
            if held is not None:
                wait_until("one waits for its time", lambda: unacknowledged(broker_url) == 1)
        finally:
            worker.end()
            print(worker.output())
    if held is None:
        assert (
            "RabbitMQ keeps messages only, and no records that all processes share: polls run also"
            in worker.output()
        )
    else:
        assert f"locks freed, {held} tasks put back" in worker.output()


def states(waldur: SimulatedWaldur, orders: list[str]) -> set[str]:
    return {waldur.order(uuid).state.value for uuid in orders}


def unacknowledged(broker_url: str) -> int | None:
    """How many tasks workers of Redis hold; of RabbitMQ that is not known at once."""
    if not broker_url.startswith("redis"):
        return None
    client = redis.Redis.from_url(broker_url)
    return sum(client.hlen(key) for key in client.scan_iter(match="unacked*", _type="hash"))
