# SPDX-License-Identifier: MIT
"""Workers under fire, at full size, and what a process of the pool weighs after it has worked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.sim.server import SimulatedWaldur
from benchmarks.parts import Parts
from tests.cluster import kills
from tests.cluster.celery_process import CeleryProcess, environment
from tests.real.processes import wait_until
from tests.site import configuration


def run_kills(parts: Parts) -> Iterator[str]:
    for seed in (1, 2):
        parts.slurm.reset()
        outcome = kills.run(parts.slurm, parts.redis, parts.new_folder(), orders=30, kills=20, seed=seed)
        yield (
            f"worker killed {outcome.kills} times during 30 orders, {outcome.under_way} of them under way "
            f"(seed {seed}): {outcome.seconds:.0f} s, faults: {outcome.faults or 'none'}"
        )


def run_memory(parts: Parts) -> Iterator[str]:
    parts.slurm.reset()
    parts.redis.flush()
    folder = parts.new_folder()
    with SimulatedWaldur() as waldur:
        env = environment(configuration(waldur, folder), parts.redis.url)
        order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10})
        worker = CeleryProcess("worker", folder / "worker.log", env).start()
        beat = CeleryProcess("beat", folder / "beat.log", env).start()
        try:
            wait_until("order done", lambda: waldur.order(order).state.value == "done", 30)
            children = _children(worker.process.pid)
            yield f"pool processes after a pass: {', '.join(f'{_resident_mb(pid):.1f} MB' for pid in children)}"
        finally:
            beat.stop()
            worker.stop()


def _children(pid: int) -> list[int]:
    """Processes below `pid` (a keeper or prefix may stand between), leaves only."""
    direct = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [leaf for child in direct for leaf in (_children(child) or [child])]


def _resident_mb(pid: int) -> float:
    line = next(
        row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1024
