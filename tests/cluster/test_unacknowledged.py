# SPDX-License-Identifier: MIT
"""Tasks of a killed worker: those that it ran and those that it held until their time are back when it starts again.

No beat runs here. Redis would give them back after the visibility timeout: fifteen minutes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import redis

from rig.celery_process import REPOSITORY, CeleryProcess, environment
from rig.processes import wait_until
from rig.rabbitmq import ADMIN, PASSWORD, RabbitMq
from rig.redis_server import RedisServer
from rig.site import configuration
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tasks.limits import VISIBILITY_TIMEOUT_S
from tests.cluster.emulated import EmulatedSlurm, settings, variables

pytestmark = pytest.mark.real_part
ORDERS = 4
QUEUE = "site.default"
# The last one waits for its time at the worker.
SEND = """
import sys
from tasks.orders import enqueue_order, order
offering, *uuids, last = sys.argv[1:]
for uuid in uuids:
    enqueue_order(offering, uuid)
order.apply_async((offering, last), queue="site.default", countdown=5)
"""


@pytest.fixture(params=["redis", "rabbitmq"])
def broker_url(request: pytest.FixtureRequest) -> str:
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.flush()
        return server.url
    rabbitmq: RabbitMq = request.getfixturevalue("rabbitmq")
    rabbitmq.ask("DELETE", f"queues/%2F/{QUEUE}")
    return f"amqp://{ADMIN}:{PASSWORD}@127.0.0.1:{rabbitmq.ports['amqp']}//"


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
        command = [sys.executable, "-c", SEND, waldur.seed.offering_uuid, *orders]
        subprocess.run(command, env=env, cwd=REPOSITORY, check=True)
        waldur.inject(Fault(kind=FaultKind.DELAY, latency_ms=250, times=None))
        worker = CeleryProcess(
            *("worker", tmp_path / "worker.log", env),
            *("--without-mingle", "--without-gossip", "--concurrency", "1"),
        )
        try:
            worker.start()
            wait_until(
                "one is under way", lambda: "executing" in {waldur.order(o).state.value for o in orders}
            )
            if broker_url.startswith("redis"):
                held = redis.Redis.from_url(broker_url)
                wait_until("two are held", lambda: unacknowledged(held) == 2)
            worker.kill()
            waldur.faults.clear()
            worker.start()
            wait_until("all are done", lambda: all(waldur.order(o).state.value == "done" for o in orders))
        finally:
            worker.stop()
            print(worker.output())
        if broker_url.startswith("redis"):
            assert "1 locks freed, 2 tasks put back" in worker.output()
            assert unacknowledged(held) == held.llen(QUEUE) == 0
        else:
            assert "the broker is not Redis: polls run also while a bridge listens" in worker.output()


def unacknowledged(client: redis.Redis) -> int:
    return sum(client.hlen(key) for key in client.scan_iter(match="unacked*", _type="hash"))
