# SPDX-License-Identifier: MIT
"""Redis behind Sentinel: tasks, locks, markers and heartbeats go on with the new master."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery.app.utils import filter_hidden_settings

from rig.celery_process import REPOSITORY, CeleryProcess, environment
from rig.parts import require
from rig.processes import wait_until
from rig.sentinel import Sentinel
from rig.site import configuration
from rig.warm_python import python
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from tasks.queue.sentinel import connection
from tests.scale import REDIS_KINDS
from tests.tasks.emulated import EmulatedSlurm, settings, variables

pytestmark = pytest.mark.real_part
ORDERS = "GET marketplace-orders/"
# The lock and the marker are taken on one master and given back to the other.
# A lock is taken and a heartbeat counted on one master, and both are found on the other.
ACROSS = """
import sys
from agent.config.model import Mode
from agent.core.events import QueueUnavailable
from tasks import current
from tasks.queue import broker, heartbeats, inspection
inspection.CONNECT_S = 600
offering = sys.argv[1]
def count():
    try:
        return heartbeats.send_heartbeat(broker.here().store, offering, [Mode.ORDER_PROCESS])
    except QueueUnavailable:
        return heartbeats.send_heartbeat(broker.here().store, offering, [Mode.ORDER_PROCESS])
queue = broker.queue()
token = queue.take("x")
taken = token is not None, count()
pipe = broker.here().client.pipeline(transaction=False)
print(*taken, pipe.set("written", "last").execute_command("WAIT", 1, 600000).execute()[1], flush=True)
sys.stdin.readline()
print(count(), ",".join(heartbeats.covered_modes(queue.store, offering)), queue.take("x") is not None, flush=True)
queue.done("x", token)
print(queue.take("x") is not None, inspection.look(current.settings()).beats is not None, flush=True)
"""


@pytest.fixture(params=REDIS_KINDS)
def sentinel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sentinel]:
    require(request.param)
    made = Sentinel(tmp_path, kind=request.param)
    made.start()
    yield made
    made.stop()


def test_all_that_kombu_needs_is_in_the_url() -> None:
    url = "sentinel://me:p%2Fw@a:1/2?master_name=site&sentinel_password=x&ssl_ca_certs=/ca.pem;sentinel://b"
    urls, options = connection(url)
    tls = "ssl_ca_certs=%2Fca.pem&ssl_cert_reqs=required"
    assert urls == f"sentinel://me:p%2Fw@a:1/2?{tls};sentinel://me:p%2Fw@b/2?{tls}"
    assert options["master_name"] == "site"
    asked = options["sentinel_kwargs"]
    assert (asked["password"], asked["ssl"], asked["ssl_cert_reqs"]) == ("x", True, "required")
    visible = filter_hidden_settings({"broker_transport_options": options})
    assert visible["broker_transport_options"]["sentinel_kwargs"]["password"] != "x"
    assert connection("redis://a/0?x=1;redis://b") == ("redis://a/0?x=1;redis://b", {})


def test_a_failover_in_the_middle_of_work(sentinel: Sentinel, tmp_path: Path) -> None:
    slurm = EmulatedSlurm(tmp_path)
    with SimulatedWaldur() as waldur:
        project = waldur.seed.project_uuids[0]
        first = waldur.place_create_order(project, "one", limits={"cpu": 10}, slug="one")
        waldur.inject(Fault(kind=FaultKind.DELAY, latency_ms=150, times=None))
        env = environment(
            configuration(waldur, tmp_path, backend=settings(slurm)),
            sentinel.url,
            {**variables(slurm), "WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES": "0.05"},
        )
        worker = CeleryProcess("worker", tmp_path / "worker.log", env)
        beat = CeleryProcess("beat", tmp_path / "beat.log", env)
        command = [python(), "-c", ACROSS, waldur.seed.offering_uuid]
        pipe = subprocess.PIPE
        try:
            with subprocess.Popen(
                command, env=env, cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True
            ) as script:
                assert script.stdin is not None and script.stdout is not None
                assert script.stdout.readline() == "True 1 1\n"
                worker.start()
                beat.start()
                wait_until("a pass has begun", lambda: waldur.request_counts().get(ORDERS, 0) > 0)
                sentinel.servers[0].kill()
                wait_until("all sentinels name the new master", sentinel.has_switched)
                script.stdin.write("\n")
                script.stdin.close()
                assert script.stdout.read() == "2 order_process False\nTrue True\n"
            waldur.faults.clear()
            wait_until("the order is done", lambda: waldur.order(first).state.value == "done")
            second = waldur.place_create_order(project, "two", limits={"cpu": 10}, slug="two")
            wait_until("the next one is done", lambda: waldur.order(second).state.value == "done")
            assert worker.process.poll() is None and beat.process.poll() is None
        finally:
            beat.end()
            worker.end()
            print(beat.output(), worker.output())
