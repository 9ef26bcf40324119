# SPDX-License-Identifier: MIT
"""`python -m benchmarks.measured_pass CONFIG WHAT`: one pass, or the reads of one, in a process of its own; prints its
figures as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.config.model import Mode
from agent.run import passes
from agent.run import site as sites
from agent.run import waldur_facts as membership_facts
from agent.run.results import PassReport
from agent.run.site import Site
from rig.processes import REPOSITORY, peak_kib
from rig.site import settings_of
from tasks.queue import lean_celery

PASSES: Mapping[str, tuple[Mode, Callable[[Site], PassReport]]] = {
    "orders": (Mode.ORDER_PROCESS, passes.process_orders),
    "members": (Mode.MEMBERSHIP_SYNC, passes.sync_members),
}


WRITING = ("add", "modify", "remove", "load")


@dataclass(frozen=True)
class Measured:
    """One pass. `longest_s`: the longest command that wrote, and `longest` that command."""

    seconds: float
    longest_s: float
    longest: str
    peak_mib: float
    reads: int
    writes: int
    requests: int
    outcomes: int
    # Of the processor, by slurmdbd, its database and slurmctld while it ran.
    servers_s: float = 0.0

    def line(self) -> str:
        return (
            f"{self.seconds:.2f} s, {self.reads} reads, {self.writes} writes (the longest {self.longest_s:.1f} s), "
            f"{self.requests} requests, {self.peak_mib:.0f} MiB at most"
        )


def start(config: Path, what: str) -> subprocess.Popen[str]:
    """Start a measured pass. `what`: a key of PASSES."""
    command = [sys.executable, "-m", "benchmarks.measured_pass", str(config), what]
    env = {**os.environ, **lean_celery.MEMORY}
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, env=env)


def result(child: subprocess.Popen[str], timeout_s: float = 1800) -> Measured:
    """Wait for a measured pass. Raises RuntimeError where it failed."""
    stdout, _ = child.communicate(timeout=timeout_s)
    if child.returncode:
        raise RuntimeError(f"the pass ended with {child.returncode}")
    return Measured(**json.loads(stdout.splitlines()[-1]))


def bare_reads_s(config: Path) -> tuple[float, float]:
    """Measure what an idle pass cannot do without, read once: the tree, and what Waldur says. Seconds of both."""
    command = [sys.executable, "-m", "benchmarks.measured_pass", str(config), "reads"]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    cluster_s, waldur_s = json.loads(done.stdout)
    return cluster_s, waldur_s


class Durations(logging.Handler):
    """Keeps the commands that wrote, with their seconds, from the lines of `backends.process`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and len(record.args) == 3:
            command, _, seconds = record.args
            if isinstance(seconds, float) and any(f" {verb} " in str(command) for verb in WRITING):
                self.found.append((seconds, str(command)[:200]))


def main(config: str, what: str) -> None:
    settings = settings_of(Path(config))
    if what == "reads":
        print(json.dumps(_reads(sites.connect(settings, settings.offerings[0], Mode.MEMBERSHIP_SYNC))))
        return
    durations, log = Durations(), logging.getLogger("backends.process")
    log.addHandler(durations)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    mode, run = PASSES[what]
    report = run(sites.connect(settings, settings.offerings[0], mode))
    assert report.error is None, report.error
    assert not report.failed, report.as_json()
    commands = report.effort.commands
    longest_s, longest = max(durations.found, default=(0.0, ""))
    measured = Measured(
        seconds=report.effort.seconds,
        longest_s=longest_s,
        longest=longest,
        peak_mib=peak_kib() / 1024,
        reads=commands["read"],
        writes=commands["write"],
        requests=report.effort.requests.total(),
        outcomes=len(report.outcomes),
    )
    print(json.dumps(vars(measured)))


def _reads(site: Site) -> tuple[float, float]:
    started_s = time.monotonic()
    site.backend.observe()
    cluster_s = time.monotonic() - started_s
    started_s = time.monotonic()
    membership_facts.gather(site)
    return cluster_s, time.monotonic() - started_s


if __name__ == "__main__":
    main(*sys.argv[1:])
