# SPDX-License-Identifier: MIT
"""Child processes for tests of processes and locks: Python scripts that tell through files how far they are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 60.0
# Whoever starts the tests in the background may have left SIGINT and SIGHUP ignored: a child must feel them.
WAIT_FOR_FILE = """
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
"""


def python(script: str, *arguments: object) -> list[str]:
    """argv of a Python script that can use `wait_for(path)`, `os`, `sys` and `time`."""
    return [sys.executable, "-c", WAIT_FOR_FILE + script, *map(str, arguments)]


def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds; fails with its name."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline_s, f"{what}: not within {TIMEOUT_S:.0f} s"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked about does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextmanager
def running(argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A child of the test with the project on its path, ended with the block."""
    child = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
