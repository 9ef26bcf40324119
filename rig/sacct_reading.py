# SPDX-License-Identifier: MIT
"""Measure the reading of sacct's output: a stand-in prints a month of any number of jobs, a child process reads it.

`python -m rig.sacct_reading FOLDER` is the child: it prints records, seconds and the peak memory of the process in KiB.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from agent.core.periods import Month
from agent.core.usage import UsageQuery
from backends.base import BackendContext
from backends.slurm.plugin import plugin
from rig.processes import REPOSITORY, peak_kib

PROGRAM = """\
#!{python} -SE
import sys
tres = ("billing=4,cpu=4,gres/gpu=1,mem=%sM,node=1" % (n % 50 * 1000) for n in range(10000))
lines = [
    f"a{{n % 200}}|u{{n % 1300}}|{{asked}}|COMPLETED|{{n * 7}}|00:00:00|{noon}|{noon}|{{n}}\\n"
    for n, asked in enumerate(tres)
]
for _ in range({count} // len(lines)):
    sys.stdout.write("".join(lines))
"""
NOON_OF_2_MAY = 1777723200


@dataclass(frozen=True)
class Measured:
    records: int
    seconds: float
    peak_kib: int


def measure(folder: Path, count: int) -> Measured:
    """Read `count` lines, a multiple of 10,000."""
    program = folder / "sacct"
    program.write_text(PROGRAM.format(python=sys.executable, noon=NOON_OF_2_MAY, count=count))
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "rig.sacct_reading", str(folder)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    records, seconds, peak = done.stdout.split()
    return Measured(int(records), float(seconds), int(peak))


def main(folder: str) -> None:
    settings = plugin.parse({"slurm_bin_path": folder}, "sacct reading").settings
    backend = plugin.connect(settings, BackendContext("0" * 32, Path(folder)))
    started_s = time.monotonic()
    usage = backend.usage(UsageQuery(Month(2026, 5)))
    seconds = time.monotonic() - started_s
    print(usage.records, seconds, peak_kib())


if __name__ == "__main__":
    main(sys.argv[1])
