# SPDX-License-Identifier: MIT
"""The everyday work of `large` on each generation of SLURM, side by side, beside bare commands; a flood of joins; and
all tests of the suites of which `make test` runs a part on newer ones.

Of the environment: SLURM_GENERATION chooses one (24.11), OTHERS sizes (0,10000), FIGURES kinds of work (idle,orders,
removal,sync), OURS how many allocations are ours, MINUTES after how long nothing more of a size is begun, SUITES tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from agent.core.errors import SiteAgentError
from benchmarks import events, large
from benchmarks.large import Figure
from benchmarks.parts import Parts
from rig.parts import GENERATIONS, OWN_GENERATION
from rig.processes import REPOSITORY
from rig.rabbitmq import RabbitMq
from rig.slurm_cluster import SlurmCluster

OTHERS = "0,10000,50000"
OURS = "240"
SUMMARY = re.compile(r"\d+ (?:passed|failed|error).* in .*")
# What is tried once more through slurmrestd.
BY_REST = ("tests/agent/run",)


def run(parts: Parts) -> Iterator[str]:
    """Yield each figure as it is measured, and after each size the table so far."""
    found: dict[str, dict[str, str]] = {}
    for generation in _generations():
        with _cluster(parts, generation) as slurm:
            for others in _sizes():
                column, started_s = f"{generation}, {others:,}", time.monotonic()
                try:
                    for figure in _figures(replace(parts, slurm=slurm), others):
                        if figure.bare_s or figure.longest_s:
                            found.setdefault(figure.what, {})[column] = _cell(figure)
                        yield f"{column} others: {figure.what}: {figure.more or f'{figure.seconds:.2f} s'}"
                except (SiteAgentError, RuntimeError, AssertionError, subprocess.SubprocessError) as error:
                    yield f"{column} others: failed: {error}"
                yield f"{column} others: measured in {time.monotonic() - started_s:.0f} s"
                yield from _table(found)


def _figures(parts: Parts, others: int) -> Iterator[Figure]:
    kinds = os.environ.get("FIGURES", ",".join(large.MEASURED)).split(",")
    ends_s = time.monotonic() + 60 * float(os.environ.get("MINUTES", "inf"))
    for figure in large.figures(parts, others, int(os.environ.get("OURS", OURS)), kinds):
        yield figure
        if time.monotonic() > ends_s:
            return


def _cell(figure: Figure) -> str:
    cell = f"{figure.seconds:.1f}"
    if figure.bare_s:
        cell = f"{figure.seconds:.1f} / {figure.bare_s:.1f} = {figure.seconds / figure.bare_s:.2f}"
    if figure.longest_s:
        cell += f"; {figure.longest_s:.1f}"
    if figure.bare_servers_s:
        cell += f" (servers {figure.servers_s:.1f} / {figure.bare_servers_s:.1f})"
    return cell


def _table(found: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    columns = list(dict.fromkeys(column for row in found.values() for column in row))
    heading = "seconds of passes / of bare commands; longest write (processor time of servers)"
    yield f"| {heading} | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for what, row in found.items():
        yield f"| {what} | {' | '.join(row.get(column, '-') for column in columns)} |"


def _sizes() -> Iterator[int]:
    yield from map(int, os.environ.get("OTHERS", OTHERS).split(","))


def run_joins(parts: Parts) -> Iterator[str]:
    """Let a thousand people join in a minute, with an order in between."""
    rabbitmq = RabbitMq(parts.new_folder())
    rabbitmq.start()
    try:
        for generation in _generations():
            with _cluster(parts, generation) as slurm:
                for others in _sizes():
                    for line in events.floods(replace(parts, slurm=slurm), rabbitmq, others):
                        yield f"{generation}, {line}"
    finally:
        rabbitmq.stop()


def run_suites(_: Parts) -> Iterator[str]:
    """Run all tests that run on each generation, and those of passes through slurmrestd where it can."""
    chosen = os.environ.get("SUITES", "").split()
    for generation in _generations():
        yield from _suites(generation, chosen)
        if generation != OWN_GENERATION:
            yield from _suites(generation, chosen or BY_REST, SLURM_BY_REST="1")


def _suites(generation: str, chosen: Sequence[str], **env: str) -> Iterator[str]:
    tests = ["-m", "pytest", "-q", "-m", "every_slurm", "--numprocesses=2", "--dist=loadfile", *chosen]
    done = subprocess.run(
        ["rig/apart.sh", sys.executable, *tests],
        cwd=REPOSITORY,
        env={**os.environ, "SLURM_GENERATION": generation, "REQUIRE_REAL_SERVICES": "1", **env},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    of = f"SLURM {generation}{' through slurmrestd' if env else ''}"
    yield from (f"{of}: {line}" for line in lines if line.startswith(("FAILED", "ERROR")))
    yield f"{of}: {next(filter(SUMMARY.search, reversed(lines)), 'no test ran')}"


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
