# SPDX-License-Identifier: MIT
"""Run one server and end everything it started: `python reaper.py PROGRAM ARG...`.

slurmd starts jobs through processes that leave its session and outlive it. The reaper adopts such orphans
(Linux sub-reaper), so killing its own descendants ends them all, when it gets SIGTERM, or when
the test session above it dies. Stands alone: imports nothing of ours.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def descendants(root: int) -> list[int]:
    """Return every living process below `root`, from one reading of /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        state, parent = stat.rpartition(")")[2].split()[:2]
        if state != "Z":
            children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def kill_all() -> None:
    """Kill our descendants until none is left: a killed parent hands its children to us."""
    while remaining := descendants(os.getpid()):
        for pid in remaining:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def stop(signal_number: int, frame: FrameType | None) -> None:
    """Leave the main loop on a signal."""
    del signal_number, frame
    raise SystemExit(0)


def main(argv: list[str]) -> int:
    """Run `argv` until it ends or SIGTERM comes; returns its exit code."""
    libc = ctypes.CDLL(None, use_errno=True)
    signal.signal(signal.SIGTERM, stop)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        server = subprocess.Popen(argv)
        while True:
            pid, status = os.wait()
            if pid == server.pid:
                return os.waitstatus_to_exitcode(status)
    finally:
        kill_all()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
