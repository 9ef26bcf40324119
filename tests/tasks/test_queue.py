# SPDX-License-Identifier: MIT
"""Orders through the queue: beat, Redis and a worker, all real, on the real SLURM."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rig.celery_process import environment
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.slurm_cluster import SlurmCluster
from rig.warm_python import python
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from tests.tasks.conftest import Start


def done(waldur: SimulatedWaldur, order_uuid: str) -> Callable[[], bool]:
    return lambda: waldur.order(order_uuid).state.value == "done"


def place(waldur: SimulatedWaldur, slug: str = "one") -> str:
    return waldur.place_create_order(waldur.seed.project_uuids[0], slug, limits={"cpu": 10}, slug=slug)


def accounts(slurm: SlurmCluster) -> list[str]:
    rows = slurm.ask("sacctmgr", "-nP", "show", "assoc", "format=account,user").splitlines()
    return sorted(row[:-1] for row in rows if row.endswith("|") and row.startswith("a_"))


def test_beat_finds_an_order_and_the_worker_fulfils_it(
    slurm: SlurmCluster, waldur: SimulatedWaldur, start: Start
) -> None:
    order = place(waldur)
    worker = start("worker", is_real=True)
    start("beat", is_real=True)
    wait_until("order done", done(waldur, order))
    assert accounts(slurm) == ["a_one"]
    logged = "order_process of offering Test SLURM: 1 done"
    wait_until("that is logged", lambda: logged in worker.output())


def test_an_event_and_its_doubles_fulfil_an_order_once(
    slurm: SlurmCluster, waldur: SimulatedWaldur, redis_server: RedisServer, config: Path, start: Start
) -> None:
    """Messages that were sent before and after the workers started, and doubled."""
    first, second = place(waldur, "one"), place(waldur, "two")
    script = (
        "import sys; from tasks.orders import enqueue_orders, events\n"
        "for _ in range(3): enqueue_orders(sys.argv[1])\n"
        "for _ in range(4): events.apply_async((sys.argv[1],), queue='site.default', priority=0)"
    )
    env = environment(config, redis_server.url)
    sender = start("worker", "-Q", "site.default", "--hostname", "second@%h")
    _python(script, env, waldur.seed.offering_uuid)
    start("worker", "--hostname", "first@%h")
    _python(script, env, waldur.seed.offering_uuid)
    wait_until("both done", lambda: done(waldur, first)() and done(waldur, second)())
    assert accounts(slurm) == ["a_one", "a_two"]
    assert waldur.request_counts()["POST marketplace-orders/{uuid}/set_state_done/"] == 2
    assert sender.process.poll() is None


def _python(script: str, env: dict[str, str], *args: str) -> None:
    subprocess.run([python(), "-c", script, *args], env=env, check=True, timeout=600)


def test_slurmdbd_away_is_waited_out_and_seen_in_the_log(
    slurm: SlurmCluster, waldur: SimulatedWaldur, start: Start
) -> None:
    slurm.stop_slurmdbd()
    order = place(waldur)
    worker = start("worker")
    start("beat", minutes=5)
    wait_until("a retry", lambda: "attempt 2 of 10 at " in worker.output())
    assert waldur.order(order).state.value == "pending-provider"
    slurm.start_slurmdbd()
    wait_until("order done", done(waldur, order))
    assert accounts(slurm) == ["a_one"]
    assert "does not answer" in worker.output()


def test_a_retry_that_the_next_pass_would_overtake_is_not_announced(
    slurm: SlurmCluster, waldur: SimulatedWaldur, start: Start
) -> None:
    """A pass expires after its period (3 s here) and takes its retries with it: a first one after 5 s would be lost."""
    slurm.stop_slurmdbd()
    order = place(waldur)
    worker = start("worker")
    start("beat", minutes=0.05)
    wait_until("a failure", lambda: "the next pass goes on" in worker.output())
    slurm.start_slurmdbd()
    wait_until("order done", done(waldur, order))
    assert "attempt " not in worker.output()


def test_waldur_away_is_waited_out(slurm: SlurmCluster, waldur: SimulatedWaldur, start: Start) -> None:
    order = place(waldur)
    waldur.inject(Fault(kind=FaultKind.RESET, path="marketplace-provider-resources", times=9))
    worker = start("worker")
    start("beat", minutes=5)
    wait_until("order done", done(waldur, order))
    assert "attempt 2 of 10 at " in worker.output()
    assert accounts(slurm) == ["a_one"]


def test_redis_restarted_under_a_busy_worker(
    slurm: SlurmCluster, waldur: SimulatedWaldur, redis_server: RedisServer, start: Start
) -> None:
    order = place(waldur)
    worker = start("worker")
    start("beat")
    wait_until("the pass has begun", lambda: waldur.request_counts().get("GET marketplace-orders/", 0) > 0)
    redis_server.kill()
    redis_server.start()
    wait_until("order done", done(waldur, order))
    later = place(waldur, "two")
    wait_until("the next order done", done(waldur, later))
    assert accounts(slurm) == ["a_one", "a_two"]
    assert worker.process.poll() is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"backend_settings": {"slurm_bin_path": "/nowhere"}}, "/nowhere/sacctmgr is not on this host"),
        ({"waldur_api_url": "ftp://x"}, "Configuration validation failed"),
        (
            {"backend_settings": {"default_account_policy": "sometimes"}},
            "is 'sometimes'; use one of common, individual, none",
        ),
    ],
    ids=["sacctmgr missing", "wrong configuration", "wrong backend setting"],
)
def test_a_worker_that_cannot_work_does_not_start_and_says_why(
    config: Path, start: Start, change: dict[str, object], words: str
) -> None:
    document = yaml.safe_load(config.read_text())
    document["offerings"][0].update(change)
    config.write_text(yaml.safe_dump(document))
    worker = start("worker", wait=False)
    wait_until("its end", lambda: worker.process.poll() is not None)
    assert worker.process.poll() == 2
    assert words in worker.output()
    assert "Traceback" not in worker.output()


def test_beat_needs_no_cluster_and_a_worker_only_its_own(
    config: Path, waldur: SimulatedWaldur, start: Start
) -> None:
    document = yaml.safe_load(config.read_text())
    other = {
        **document["offerings"][0],
        "name": "Elsewhere",
        "waldur_offering_uuid": "f" * 32,
        "queue": "far",
    }
    other["backend_settings"] = {"slurm_bin_path": "/nowhere"}
    document["offerings"].append(other)
    config.write_text(yaml.safe_dump(document))
    order = place(waldur)
    start("beat")
    start("worker", "-Q", "site.default")
    wait_until("order done", done(waldur, order))


@pytest.mark.parametrize(
    ("option", "name", "hint"),
    [("-Q", "site.typo", ""), ("-Q", "default", " (did you mean site.default?)"), ("-X", "site.typo", "")],
)
def test_an_unknown_queue_is_refused(start: Start, option: str, name: str, hint: str) -> None:
    worker = start("worker", option, name, wait=False)
    wait_until("its end", lambda: worker.process.poll() is not None)
    assert worker.process.poll() == 2
    assert f" has no queue {name}{hint}; its queues are: site.default\n" in worker.output()
    assert "Traceback" not in worker.output()


@pytest.mark.parametrize("role", ["beat", "worker"])
def test_a_beat_table_that_names_a_missing_task_is_refused(
    redis_server: RedisServer, config: Path, role: str
) -> None:
    script = (
        "import sys, beat_schedule as table\n"
        "table.TASK_OF = {mode: 'no.such.task' for mode in table.TASK_OF}\n"
        f"sys.argv = ['celery', '-A', 'tasks', '{role}']\n"
        "from celery.__main__ import main; main()"
    )
    command = [python(), "-c", script]
    env = environment(config, redis_server.url)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "the beat table names tasks that do not exist: no.such.task" in done.stderr
