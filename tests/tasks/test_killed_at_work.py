# SPDX-License-Identifier: MIT
"""A worker that is killed while a pass is at work and was asked for once more: the next one does both.

No beat runs here, and no event is sent again. In one process what waits is lost with it, and the first pass after its
start finds it again (tests/agent/cli/test_site_agent.py).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from rig.celery_process import REPOSITORY, CeleryProcess, environment
from rig.processes import wait_until
from rig.site import configuration
from rig.warm_python import python
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from tests.tasks.emulated import EmulatedSlurm, settings, variables

pytestmark = pytest.mark.real_part
SEND = """
import sys
from tasks import membership, orders
offering, project = sys.argv[1:]
membership.enqueue_part(offering, project_uuid=project) if project else orders.enqueue_orders(offering)
"""


def record_in(broker_url: str, folder: Path, name: str) -> dict[str, Any]:
    """A record of the queue as it stands in Redis, or in a file of this host; empty where there is none."""
    path = folder / "state" / "queue" / "records.json"
    if broker_url.startswith("redis"):
        text = redis.Redis.from_url(broker_url).get(f"site-{name}")
        return dict(json.loads(text)) if text else {}
    record, _ = json.loads(path.read_text()).get(name, ({}, 0)) if path.exists() else ({}, 0)
    return dict(record)


def test_the_next_worker_does_what_was_at_work_and_what_was_asked_for_since_then(
    broker_url: str, tmp_path: Path
) -> None:
    slurm = EmulatedSlurm(tmp_path)
    with SimulatedWaldur() as waldur:
        config = configuration(waldur, tmp_path, backend=settings(slurm), membership_sync_backend="slurm")
        env = environment(config, broker_url, variables(slurm))
        project, offering = waldur.seed.project_uuids[0], waldur.seed.offering_uuid
        order = waldur.place_create_order(project, "one", limits={"cpu": 10}, slug="one")

        def send(*words: str) -> None:
            subprocess.run([python(), "-c", SEND, offering, *words], env=env, cwd=REPOSITORY, check=True)

        def joins(name: str) -> None:
            waldur.people.add_user(name)
            waldur.people.add_member(project, name, account=name)
            send(project)

        def members() -> set[str]:
            return set(slurm.ask("sacctmgr", "-nP", "show", "assoc", "account=a_one", "format=user").split())

        def at_work(mode: str = "membership_sync") -> dict[str, Any]:
            return record_in(broker_url, tmp_path, f"work:{mode}:{offering}")

        worker = CeleryProcess("worker", tmp_path / "worker.log", env)
        try:
            worker.start()
            send("")
            wait_until("the order is done", lambda: waldur.order(order).state.value == "done")
            wait_until("its members are in", lambda: len(members()) >= 3)
            wait_until("nothing is at work", lambda: not (at_work("order_process") or at_work()))
            waldur.inject(Fault(kind=FaultKind.DELAY, latency_ms=30_000, times=None))
            joins("early")
            wait_until("a pass is at work", at_work)
            joins("late")
            wait_until("it was asked for once more", _asked_again(at_work))
            worker.kill()
            waldur.faults.clear()
            worker.start()
            wait_until("both are in", lambda: {"early", "late"} <= members())
            wait_until("nothing is at work any more", lambda: not at_work())
        finally:
            worker.end()
            print(worker.output())
    assert "ended without finishing: 1 locks freed, " in worker.output()


def _asked_again(at_work: Callable[[], dict[str, Any]]) -> Callable[[], bool]:
    return lambda: bool(at_work().get("again"))
