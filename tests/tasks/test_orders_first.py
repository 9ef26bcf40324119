# SPDX-License-Identifier: MIT
"""An order that comes when 300 other tasks wait, with FULL_TESTS thousands, is the next that a worker takes:
on Redis, on RabbitMQ, and in one process. Counted by the tasks that were run before it; each of these others is counted
by its error.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.celery_process import REPOSITORY, CeleryProcess, environment
from rig.child_process import script_command
from rig.operator_process import OperatorProcess
from rig.processes import wait_until
from rig.site import configuration
from rig.warm_python import python
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from tests.scale import FULL
from tests.tasks.emulated import EmulatedSlurm, settings, variables

pytestmark = pytest.mark.real_part
OTHERS = 3_800 if FULL else 300
OTHER, APPROVED, ORDER_QUEUED = "events.rotate_key (", "approve order", "ORDER QUEUED"
FILL = """
import sys
from agent.core.events import Job, JobKind
from tasks.events import TaskQueue
def fill(offering, count):
    queue = TaskQueue()
    for number in range(count):
        queue.send(Job(JobKind.KEY_ROTATION, offering, request_uuid=f"{number:032x}"))
def order(offering):
    TaskQueue().send(Job(JobKind.ORDERS, offering))
"""
SEND = FILL + "fill(sys.argv[1], int(sys.argv[2])); order(sys.argv[1])"
# A service of one process: its listener queues what a bridge would, while the worker is at work.
ALONE = f"""
import logging, threading
{FILL}
from pathlib import Path
from agent.cli.settings import load_settings
from tasks import embedded
settings = load_settings(Path(sys.argv[3]))
class Listener:
    def __init__(self):
        self.stopped = threading.Event()
    def run(self):
        fill(sys.argv[1], int(sys.argv[2]))
        order(sys.argv[1])
        print("ORDER QUEUED", file=sys.stderr, flush=True)
        self.stopped.wait()
    def stop(self):
        self.stopped.set()
logging.basicConfig(level=logging.INFO)
sys.exit(embedded.run(settings, "alone", lambda offering: frozenset(), Listener))
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[SimulatedWaldur, Path, EmulatedSlurm]]:
    slurm = EmulatedSlurm(tmp_path)
    with SimulatedWaldur() as waldur:
        yield waldur, configuration(waldur, tmp_path, backend=settings(slurm)), slurm


def test_an_order_is_the_next_that_a_worker_takes(
    broker_url: str, site: tuple[SimulatedWaldur, Path, EmulatedSlurm], tmp_path: Path
) -> None:
    waldur, config, slurm = site
    env = environment(config, broker_url, variables(slurm))
    waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
    send = [python(), "-c", SEND, waldur.seed.offering_uuid, str(OTHERS)]
    subprocess.run(send, env=env, cwd=REPOSITORY, check=True)
    alone = ("--concurrency", "1")
    log = tmp_path / "worker.log"
    worker = CeleryProcess("worker", log, env, *alone)
    try:
        worker.start()
        wait_until("the order is carried out", lambda: APPROVED in worker.output(), log=log)
        wait_until("the others go on", lambda: OTHER in worker.output(), log=log)
    finally:
        worker.kill()
    before = worker.output().partition(APPROVED)[0]
    assert before.count(OTHER) == 0


def test_an_order_is_the_next_but_for_those_taken_already_in_one_process(
    site: tuple[SimulatedWaldur, Path, EmulatedSlurm], tmp_path: Path
) -> None:
    waldur, config, slurm = site
    env = environment(config, "", variables(slurm))
    waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
    waldur.inject(Fault(kind=FaultKind.DELAY, path="api-keys", latency_ms=500, times=None))
    command = script_command(ALONE, waldur.seed.offering_uuid, OTHERS, config)
    service = OperatorProcess(command, tmp_path / "alone.log", env, ready=ORDER_QUEUED, stop_s=40)
    try:
        service.start()
        wait_until("the order is carried out", lambda: APPROVED in service.output())
        wait_until("the others go on", lambda: OTHER in service.output().partition(APPROVED)[2])
    finally:
        service.kill()
    early, _, later = service.output().partition(APPROVED)[0].partition(ORDER_QUEUED)
    assert later
    assert early.count(OTHER) < OTHERS // 2, "most of them waited"
    # Celery takes four at a time there (celeryconfig), and one more may begin before the order is there.
    assert later.count(OTHER) <= 4 + 1
