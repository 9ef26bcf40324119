# SPDX-License-Identifier: MIT
"""Child processes for tests of processes and locks: Python scripts that report through files how far they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig.processes import REPOSITORY

# Whoever starts the tests in the background may have left SIGINT and SIGHUP ignored: the child resets them.
PRELUDE = """
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
"""


def script_command(script: str, *arguments: object) -> list[str]:
    """Return argv of a Python script that can use `wait_for(path)`, `os`, `sys` and `time`."""
    return [sys.executable, "-c", PRELUDE + script, *map(str, arguments)]


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextmanager
def child_process(argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a child with the project on its path, and kill it at the end of the block."""
    child = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, cwd=REPOSITORY)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
