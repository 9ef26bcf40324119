# SPDX-License-Identifier: MIT
"""The emulated SLURM of this process: one server, started when it is first asked for, and a state for each who asks."""

from __future__ import annotations

import atexit
import os
import tempfile
from functools import cache
from pathlib import Path

from rig import processes, quick_client
from simulator.demo import emulator


def emulated_cluster(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return the folder of the commands, and the environment that leads them to a state in `folder`."""
    return commands(), emulator.environment(folder)


@cache
def commands() -> Path:
    """Return the folder of the commands, which serve until this process ends. Raises NeverCame."""
    made = tempfile.TemporaryDirectory(prefix="emulator-", ignore_cleanup_errors=True)
    folder = Path(made.name)
    folder.chmod(0o755)
    programs, place, log = (folder / name for name in ("bin", "socket", "log"))
    emulator.write_clients(programs, place, write_client=quick_client.write_client)
    server = processes.start(emulator.server(place), log=log, env=os.environ)
    atexit.register(made.cleanup)
    atexit.register(processes.stop, server)
    processes.wait_until("the emulator", place.exists, server, log)
    return programs
