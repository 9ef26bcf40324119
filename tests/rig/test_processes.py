# SPDX-License-Identifier: MIT
"""What the stand-ins know of processes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from rig import processes
from rig.warm_python import python

BUSY = """
import threading
for _ in range(8):
    threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()
print("busy", flush=True)
"""


def test_a_process_that_is_suspended_stands_still_at_once() -> None:
    with subprocess.Popen([python(), "-c", BUSY], stdout=subprocess.PIPE, text=True) as busy:
        assert busy.stdout is not None
        try:
            assert busy.stdout.readline() == "busy\n"
            for _ in range(20):
                processes.freeze(busy.pid)
                threads = Path(f"/proc/{busy.pid}/task").glob("*/stat")
                assert {stat.read_text().rpartition(")")[2].split()[0] for stat in threads} == {"T"}
                os.kill(busy.pid, signal.SIGCONT)
        finally:
            busy.kill()
