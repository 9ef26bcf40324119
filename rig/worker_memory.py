# SPDX-License-Identifier: MIT
"""Measure the memory of a pool process after work: orders in batches, a pass for each batch, one process for all."""

from __future__ import annotations

import math
from pathlib import Path

from rig.celery_process import CeleryProcess, environment
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

ORDERS_PER_PASS = 20
LIMITS = {"cpu": 10, "mem": 2}


def resident_after(
    slurm: SlurmCluster,
    redis: RedisServer,
    folder: Path,
    *,
    passes: int,
    members: int = 5,
    limit_mb: float = math.inf,
) -> list[tuple[int, float]]:
    """Return pid and resident size, in MB (10^6 bytes), of the only process of a pool, after each pass. One that a pass
    has made larger than `limit_mb` has to be replaced at the end of its task, and the next one is weighed.
    """
    redis.flush()
    found = []
    with SimulatedWaldur(scenario=Scenario(members_per_project=members)) as waldur:
        projects = waldur.seed.project_uuids
        variables = {
            "SLURM_CONF": slurm.env["SLURM_CONF"],
            "WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES": "0.05",
        }
        env = environment(configuration(waldur, folder), redis.url, variables)
        worker = CeleryProcess(
            "worker", folder / "worker.log", env, "--concurrency", "1", is_real=True
        ).start()
        beat = CeleryProcess("beat", folder / "beat.log", env).start()
        try:
            for number in range(passes):
                slugs = [f"m{number}x{n}" for n in range(ORDERS_PER_PASS)]
                orders = [
                    waldur.place_create_order(
                        projects[hash(slug) % len(projects)], slug, limits=dict(LIMITS), slug=slug
                    )
                    for slug in slugs
                ]
                wait_until(
                    "orders done",
                    lambda: all(waldur.order(uuid).state.value == "done" for uuid in orders),  # noqa: B023
                    pause_s=0.2,
                )
                found.append(_largest(worker.process.pid, limit_mb))
        finally:
            beat.stop()
            worker.stop()
    return found


def _largest(worker: int, limit_mb: float) -> tuple[int, float]:
    """Return pid and size of the largest process of a pool, once none is left that is to be replaced; while one is,
    there is none for a moment.
    """
    sizes: dict[int, float] = {}

    def weighed() -> bool:
        sizes.clear()
        sizes.update((pid, size) for pid in _leaves(worker) if (size := _resident_mb(pid)))
        return bool(sizes) and max(sizes.values()) < limit_mb

    wait_until("a pool process within its limit", weighed)
    return max(sizes.items(), key=lambda each: each[1])


def _resident_mb(pid: int) -> float:
    """Return 0 for a process that has ended."""
    try:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) * 1024 / 1e6 for row in rows if row.startswith("VmRSS")), 0)


def _leaves(pid: int) -> list[int]:
    """Processes below `pid` (a reaper or prefix may stand between) that have none below themselves."""
    try:
        direct = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended
        return []
    return [leaf for child in direct for leaf in (_leaves(child) or [child])]
