# SPDX-License-Identifier: MIT
"""Kills of workers at full size, and the memory of a pool process after work."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.parts import Parts
from rig import worker_kills, worker_memory

PASSES = 10


def run_kills(parts: Parts) -> Iterator[str]:
    for seed in (1, 2):
        parts.slurm.reset()
        outcome = worker_kills.run(
            parts.slurm, parts.redis, parts.new_folder(), orders=30, kills=20, seed=seed
        )
        yield (
            f"worker killed {outcome.kills} times during 30 orders, {outcome.under_way} of them under way "
            f"(seed {seed}): {outcome.seconds:.0f} s, faults: {outcome.faults or 'none'}"
        )


def run_memory(parts: Parts) -> Iterator[str]:
    parts.slurm.reset()
    weights = worker_memory.resident_after(parts.slurm, parts.redis, parts.new_folder(), passes=PASSES)
    first, last = weights[0][1], weights[-1][1]
    processes = len({pid for pid, _ in weights})
    yield (
        f"a pool process after 1 pass of {worker_memory.ORDERS_PER_PASS} orders: {first:.1f} MB (10^6), "
        f"after {PASSES}: "
        f"{last:.1f} MB, largest {max(weight for _, weight in weights):.1f} MB, {processes} process(es)"
    )
