# SPDX-License-Identifier: MIT
"""A child ends with its parent, at whatever moment that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rig.child_process import is_alive
from rig.processes import REPOSITORY, wait_until

# `kill` runs in the child, before its program begins.
PARENT = """
import os, signal, sys, time
from agent.host import children

signal.signal(signal.SIGTERM, lambda *_: None)
parent, say = os.getpid(), os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
getppid = os.getppid

def kill():
    os.write(say, str(os.getpid()).encode())
    os.kill(parent, signal.SIGKILL)
    while getppid() == parent: time.sleep(0.01)

def kill_after():
    found = getppid()
    kill()
    return found

{when}
children.start(["sleep", "987"], os.environ, 1)
"""
MOMENTS = {
    "before the kernel is asked": "os.register_at_fork(after_in_child=kill)",
    "after it was seen to live": "os.getppid = kill_after",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_child_whose_parent_is_killed_while_it_starts_ends_too(tmp_path: Path, moment: str) -> None:
    said = tmp_path / "pid"
    script = PARENT.replace("{when}", MOMENTS[moment])
    done = subprocess.run([sys.executable, "-c", script, str(said)], cwd=REPOSITORY, check=False)
    assert done.returncode == -signal.SIGKILL
    child = int(said.read_text())
    try:
        wait_until("its end", lambda: not is_alive(child))
    finally:
        if is_alive(child):
            os.kill(child, signal.SIGKILL)
