# SPDX-License-Identifier: MIT
"""The emulated SLURM of a test run: one server, started when it is first asked for, and a state for each who asks."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from rig import quick_client, run_servers
from simulator.demo import emulator


def emulated_cluster(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return the folder of the commands, and the environment that leads them to a state in `folder`."""
    return commands(), emulator.environment(folder)


@cache
def commands() -> Path:
    """Return the folder of the commands, which serve until the run ends. Raises SiteAgentError."""
    write_clients = partial(emulator.write_clients, write_client=quick_client.write_client)
    folder = run_servers.shared(
        "emulator",
        emulator.server,
        lambda folder: write_clients(folder / "bin", folder / run_servers.SOCKET),
    )
    return folder / "bin"
