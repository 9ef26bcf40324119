# SPDX-License-Identifier: MIT
"""The everyday work of `large` on each generation of SLURM, side by side, beside bare commands; and all tests of the
suites of which `make test` runs a part on newer ones. SLURM_GENERATION chooses one of them, OTHERS sizes (0,10000).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from benchmarks import large
from benchmarks.parts import Parts
from rig.parts import GENERATIONS
from rig.processes import REPOSITORY
from rig.slurm_cluster import SlurmCluster

OTHERS = (0, 10_000, 50_000)
OURS = 240
SUMMARY = re.compile(r"\d+ (?:passed|failed|error).* in .*")


def run(parts: Parts) -> Iterator[str]:
    """Yield each figure as it is measured, and in the end a table with a column for each generation and size."""
    found: dict[str, dict[str, str]] = {}
    for generation in _generations():
        with _cluster(parts, generation) as slurm:
            for others in _sizes():
                started_s = time.monotonic()
                column = f"{generation}, {others:,}"
                for figure in large.figures(replace(parts, slurm=slurm), others, OURS):
                    if figure.bare_s:
                        ratio = f"{figure.seconds:.1f} / {figure.bare_s:.1f} = {figure.seconds / figure.bare_s:.2f}"
                        longest = f"; {figure.longest_s:.1f}" if figure.longest_s else ""
                        found.setdefault(figure.what, {})[column] = f"{ratio}{longest}"
                    yield f"{column} others: {figure.what}: {figure.more or f'{figure.seconds:.2f} s'}"
                yield f"{column} others: measured in {time.monotonic() - started_s:.0f} s"
    columns = list(dict.fromkeys(column for row in found.values() for column in row))
    yield f"| seconds of passes / of bare commands; longest write (SLURM, others) | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for what, row in found.items():
        yield f"| {what} | {' | '.join(row.get(column, '-') for column in columns)} |"


def _sizes() -> tuple[int, ...]:
    chosen = os.environ.get("OTHERS", "")
    return tuple(map(int, chosen.split(","))) if chosen else OTHERS


def run_suites(_: Parts) -> Iterator[str]:
    """Run all tests that run on each generation."""
    for generation in _generations():
        tests = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            "every_slurm",
            "--numprocesses=2",
            "--dist=loadfile",
        ]
        done = subprocess.run(
            ["rig/apart.sh", *tests],
            cwd=REPOSITORY,
            env={**os.environ, "SLURM_GENERATION": generation, "REQUIRE_REAL_SERVICES": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        lines = done.stdout.splitlines()
        yield from (f"SLURM {generation}: {line}" for line in lines if line.startswith(("FAILED", "ERROR")))
        summary = next(filter(SUMMARY.search, reversed(lines)), "no test ran")
        yield f"SLURM {generation}: {summary}"


def _generations() -> list[str]:
    chosen = os.environ.get("SLURM_GENERATION", "")
    return [chosen] if chosen else list(GENERATIONS)


@contextmanager
def _cluster(parts: Parts, generation: str) -> Iterator[SlurmCluster]:
    """Serve a cluster that passes of this process and its children find; in the end they find the one of all again."""
    before = {name: os.environ[name] for name in ("SLURM_CONF", "PATH")}
    slurm = SlurmCluster(parts.new_folder() / "slurm", generation=generation)
    slurm.start()
    try:
        os.environ.update({name: slurm.env[name] for name in before})
        yield slurm
    finally:
        os.environ.update(before)
        slurm.stop()
