# SPDX-License-Identifier: MIT
"""What was used: reading a month of many jobs, from a program that only prints, and from the real slurmdbd."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from agent.core.periods import Month
from agent.core.usage import UsageQuery, UsageSource
from backends.base import BackendContext
from backends.slurm.backend import SlurmBackend
from backends.slurm.plugin import plugin
from benchmarks.parts import Parts
from rig import job_rows, sacct_reading

LINES = (10_000, 100_000, 1_000_000)
ACCOUNTS, MEMBERS = 200, 6
JOBS = 100_000
MONTH = Month(2026, 5)
# sacct's own way of cutting jobs at the borders, which asks the database once more for each.
TRUNCATED = (
    "-aXDnPT",
    "--noconvert",
    "-S",
    "2026-05-01",
    "-E",
    "2026-06-01",
    "-o",
    "Account,User,ReqTRES,ElapsedRaw",
)


def run(parts: Parts) -> Iterator[str]:
    yield from _lines(parts.new_folder())
    yield from _month(parts)


def members(accounts: int = ACCOUNTS, each: int = MEMBERS) -> Mapping[str, Sequence[str]]:
    """Accounts `a0`, `a1` ... with members `u0`, `u1` ..."""
    return {f"a{n}": [f"u{n * each + k}" for k in range(each)] for n in range(accounts)}


def _lines(folder: Path) -> Iterator[str]:
    for count in LINES:
        found = sacct_reading.measure(folder, count)
        assert found.records == count
        yield (
            f"{count:,} lines of a program that prints them: {found.seconds:.2f} s, "
            f"{count / found.seconds:,.0f} lines/s, {found.peak_kib / 1024:.0f} MiB at most"
        )


def _month(parts: Parts) -> Iterator[str]:
    """Measure the bare commands and ours, over the same jobs in the real slurmdbd."""
    parts.slurm.reset()
    started_s = time.monotonic()
    job_rows.fill(parts.slurm, members(), JOBS, [MONTH], rolled=1)
    yield f"{JOBS:,} jobs of {ACCOUNTS} accounts put into slurmdbd and rolled up: {time.monotonic() - started_s:.0f} s"
    settings = plugin.parse({"cluster_name": parts.slurm.cluster}, "benchmark").settings
    backend = plugin.connect(settings, BackendContext("0" * 32, parts.new_folder()))
    queries = {f"usage, {source}": UsageQuery(MONTH, source=source) for source in UsageSource}
    for name, query in queries.items():
        yield _timed(name, backend, lambda query=query: backend.usage(query).records)
    yield _timed("sreport", backend, lambda: backend.rolled_up(UsageQuery(MONTH)).records)
    bare = parts.slurm.ask
    yield _timed(
        "bare sacct --truncate", backend, lambda: len(bare("sacct", *TRUNCATED, timeout_s=300).splitlines())
    )


def _timed(name: str, backend: SlurmBackend, read: Callable[[], int]) -> str:
    before, started_s = backend.executed["read"], time.monotonic()
    records = read()
    seconds = time.monotonic() - started_s
    return f"{name}: {records:,} records in {seconds:.1f} s, {backend.executed['read'] - before} processes of ours"
