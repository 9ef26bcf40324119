# SPDX-License-Identifier: MIT
"""Reports through the queue: beat, Redis and a worker, all real, on the real SLURM; and an order that comes between."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import beat_schedule as table
from agent.core.periods import Month
from rig import job_rows
from rig.celery_process import REPOSITORY, environment
from rig.job_rows import JobRow
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.site import configuration, settings_of
from rig.slurm_cluster import SlurmCluster
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.tasks.conftest import Start

RESOURCES = 60
SETS = "POST marketplace-component-usages/set_usage/"
SEND = """
import json, sys
from tasks import orders, report
from tasks.queue import broker
offering = sys.argv[1]
queue = "site.default"
def look():
    print(json.dumps([broker.here().urgent_waits(queue, below) for below in (0, 1, 8)]), flush=True)
report.poll.apply_async((offering,), queue=queue, priority=8, expires=-5)
report.poll.apply_async((offering,), queue=queue, priority=8)
look()
sys.stdin.readline()
orders.enqueue_orders(offering)
look()
"""


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    scenario = Scenario(
        projects_per_customer=6, allocations_per_project=10, members_per_project=1, backend_prefix="a_"
    )
    with SimulatedWaldur(scenario=scenario) as server:
        yield server


@pytest.fixture
def config(slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path) -> Path:
    """Every allocation has an account, one of them a job."""
    names = [waldur.resource(uuid).backend_id for uuid in waldur.seed.resource_uuids]
    job_rows.add_accounts(slurm, {name: ["ann"] for name in names})
    now = datetime.now(UTC)
    start = max(Month.of(now).start(UTC), now - timedelta(hours=2))
    job_rows.add(slurm, [JobRow(names[0], "ann", start, start + timedelta(hours=1), {"cpu": 4})])
    return configuration(waldur, tmp_path, reporting_backend="slurm")


def sent(waldur: SimulatedWaldur) -> int:
    return waldur.request_counts().get(SETS, 0)


def test_a_report_makes_way_for_an_order_and_goes_on(
    waldur: SimulatedWaldur,
    redis_server: RedisServer,
    config: Path,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    redis_server.flush()
    has_begun, goes_on = threading.Event(), threading.Event()

    def hold(method: str, path: str) -> None:
        if "set_usage" in path:
            has_begun.set()
            goes_on.wait(600)

    monkeypatch.setattr(waldur.faults, "strike", hold)
    order = waldur.place_create_order(
        waldur.seed.project_uuids[0], "urgent", limits={"cpu": 10}, slug="urgent"
    )
    env = environment(config, redis_server.url, {"PYTHONPATH": str(REPOSITORY)})
    command = [python(), "-c", SEND, waldur.seed.offering_uuid]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, env=env, cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True) as sender,
        ExitStack() as stack,
    ):
        stack.callback(goes_on.set)
        assert sender.stdin is not None and sender.stdout is not None
        assert json.loads(sender.stdout.readline()) == [False, False, False]
        worker = start("worker", "--concurrency", "1")
        wait_until("the report has begun", has_begun.is_set)
        sender.stdin.write("now\n")
        sender.stdin.close()
        answer = sender.stdout.readline()
        goes_on.set()
        assert json.loads(answer) == [False, True, True]
    wait_until("order done", lambda: waldur.order(order).state.value == "done")
    wait_until("the share", lambda: len(list(waldur.store.user_usages)) == 1)
    worker.stop()
    output = worker.output()
    assert "something more urgent waits, or the time is up: the next report goes on" in output
    assert output.count("Discarding revoked task: report.poll") == 1
    # The order's own allocation is reported as well.
    assert len(list(waldur.store.usages)) == 2 * (RESOURCES + 1)
    assert sent(waldur) == RESOURCES + 1
    posted = " ".join(entry.path for entry in waldur.requests.entries("POST *"))
    assert 0 < posted.partition("set_state_done")[0].count("set_usage") < RESOURCES, "the order came between"
    (row,) = [row for row in waldur.store.usages if row.usage]
    assert (row.component_type, row.usage) == ("cpu", 4)


def test_the_beat_table_has_reports_that_expire(config: Path) -> None:
    settings = settings_of(config)
    (entry,) = [e for name, e in table.entries(settings).items() if name.startswith("report:")]
    assert (entry["task"], entry["schedule"]) == ("report.poll", 1800)
    assert entry["options"]["expires"] == 1800
    orders, members, _ = (table.PRIORITY_OF[mode] for mode in table.TASK_OF)
    assert entry["options"]["priority"] > max(orders, members, table.EVENT_PRIORITY)
