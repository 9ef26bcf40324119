# SPDX-License-Identifier: MIT
"""A process of the pool stays small: after some passes with twenty orders each it is below 60 MB."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from rig import processes, worker_memory
from rig.celery_process import environment
from rig.processes import tail, wait_until
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tasks.queue import lean_celery
from tests.scale import FULL
from tests.tasks.emulated import settings, variables

LIMIT_MB = 60
# A module of tasks: what each process of the pool says of Python's collector as it begins.
LOOKS = """
import gc
from celery import signals

@signals.worker_process_init.connect
def look(**_):
    print(f"collects: {gc.isenabled()}, but no modules: {gc.get_freeze_count() > 10_000}", flush=True)
"""
# Another one: each process of the pool takes longer to begin than Celery waits for one by default.
BEGINS_SLOWLY = """
import os, time
from celery import signals

@signals.worker_process_init.connect
def begin(**_):
    print("begins:", os.getpid(), flush=True)
    time.sleep(5)
    print("has begun:", os.getpid(), flush=True)
"""
CELERY = Path(sys.executable).with_name("celery")


def test_a_pool_process_is_below_its_limit_after_some_passes(
    slurm: SlurmCluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    passes = 3 if FULL else 2
    weights = worker_memory.resident_after(slurm, redis_server, tmp_path, passes=passes, limit_mb=LIMIT_MB)
    assert len(weights) == passes
    assert max(weight for _, weight in weights) < LIMIT_MB, weights


def test_a_process_that_outgrows_its_limit_is_replaced(redis_server: RedisServer, tmp_path: Path) -> None:
    with SimulatedWaldur() as waldur:
        env = environment(configuration(waldur, tmp_path), redis_server.url)
        ask = [sys.executable, "-c", "from tasks.app import app; print(app.conf.worker_max_memory_per_child)"]
        said = subprocess.run(ask, env=env, capture_output=True, text=True, check=True, timeout=600).stdout
    assert LIMIT_MB * 0.95 < int(said) * 1024 / 1e6 < LIMIT_MB


def test_a_process_that_replaces_another_one_may_begin_slowly(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """As on a busy head node. Celery kills it after 4 s, and the next one, and all that follow."""
    log = tmp_path / "worker.log"
    (tmp_path / "begins.py").write_text(BEGINS_SLOWLY)
    with SimulatedWaldur() as waldur:
        env = environment(configuration(waldur, tmp_path), redis_server.url)
        worker = processes.start(
            [str(CELERY), "-A", "tasks", "worker", "-c", "1", "-I", "begins"], log=log, env=env
        )

        def pids(which: str) -> list[str]:
            return re.findall(rf"^{which}: (\d+)", tail(log, 10**9), re.MULTILINE)

        try:
            wait_until("the first one", lambda: bool(pids("has begun")), worker, log)
            wait_until("the worker", lambda: " ready." in tail(log, 10**9), worker, log)
            os.kill(int(pids("has begun")[0]), signal.SIGKILL)
            wait_until("the second one", lambda: len(pids("has begun")) == 2, worker, log)
            assert pids("begins") == pids("has begun")
        finally:
            processes.stop(worker)


def test_a_worker_carries_no_flower_also_after_a_restart(
    slurm: SlurmCluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Celery's command imports it into every worker. Same pid throughout: it is what systemd watches. It becomes what
    `cluster` starts at once, and is restarted as that.
    """
    redis_server.flush()
    log = tmp_path / "worker.log"
    (tmp_path / "looks.py").write_text(LOOKS)
    with SimulatedWaldur() as waldur:
        config = configuration(waldur, tmp_path, backend=settings(slurm))
        env = environment(config, redis_server.url, variables(slurm))
        worker = processes.start(
            [str(CELERY), "-A", "tasks", "worker", "-c", "1", "-I", "looks"], log=log, env=env
        )
        try:
            seen = 0
            for is_first in (True, False):
                for said in (" ready.", "collects: True, but no modules: True"):  # by two processes
                    wait_until(said, lambda: said in tail(log, 10**9)[seen:], worker, log)  # noqa: B023
                assert command_line(worker.pid).startswith(
                    f"{sys.executable} {lean_celery.PROGRAM} -A tasks worker -c 1 "
                )
                mapped = Path(f"/proc/{worker.pid}/maps").read_text()
                assert "tornado" not in mapped and "charset_normalizer" not in mapped
                if is_first:
                    seen = len(tail(log, 10**9))
                    worker.send_signal(signal.SIGHUP)
        finally:
            processes.stop(worker, timeout_s=40)


def test_a_worker_carries_nothing_that_colours_answers(tmp_path: Path) -> None:
    with SimulatedWaldur() as waldur:
        env = environment(configuration(waldur, tmp_path), "redis://127.0.0.1:1/0")
        carried = {}
        for module in ("tasks.queue.lean_celery", "celery"):
            script = (
                "import atexit, runpy, sys; atexit.register(lambda: print('pygments' in sys.modules)); "
                f"sys.argv[1:] = ['--version']; runpy.run_module({module!r}, run_name='__main__')"
            )
            ask = [sys.executable, "-c", script]
            said = subprocess.run(
                ask, env=env, capture_output=True, text=True, check=True, timeout=600
            ).stdout
            carried[module] = said.splitlines()[-1]
    assert carried == {"tasks.queue.lean_celery": "False", "celery": "True"}


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
