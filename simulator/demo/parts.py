# SPDX-License-Identifier: MIT
"""The embedded parts of the demo: a broker, an emulated cluster, and the processes of the agent itself.

Every part is a child of the demo, listens on loopback only, and is stopped by the pid that was started.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agent.core.errors import SiteAgentError
from agent.host import broker_program
from agent.host.children import StopRequest
from agent.host.children import start as start_child
from simulator.demo import turns

STOP_TIMEOUT_S = 10.0
PORTS = range(15_000, 32_000)
# Of the emulated cluster; it has no squeue.
PROGRAMS = ("sacctmgr", "sacct", "scancel", "scontrol", "sinfo", "sreport", "sshare", "slurm-emulator")
# What follows the interpreter for a command of the operator's.
COMMAND = ("-c", "from agent.cli.main import main; main()")


class DemoError(SiteAgentError):
    """A part of the demo cannot be started, or did not become ready; the text names its log."""


class Children:
    """Children of the demo, stopped in the opposite order to that in which they were started."""

    def __init__(self, folder: Path, stop_request: StopRequest) -> None:
        self._folder = folder
        self._stop_request = stop_request
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        with self.log(name).open("ab") as output:
            child = start_child(argv, environment, output)
        self._running.append((name, child))

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def wait(self, name: str, ready: Callable[[], bool], timeout_s: float = 20) -> None:
        """Wait until `ready` holds; raises DemoError when the child ends before, or after `timeout_s`."""
        child = dict(self._running)[name]
        deadline_s = time.monotonic() + timeout_s
        while not ready():
            if child.poll() is not None or time.monotonic() > deadline_s:
                last = self.log(name).read_text(errors="replace").strip().splitlines()[-5:]
                ended = (
                    f"ended with {child.returncode}" if child.returncode is not None else "does not answer"
                )
                raise DemoError(f"{name} {ended}; {self.log(name)} says: {' / '.join(last) or 'nothing'}")
            self._stop_request.pause(0.05)

    def dead(self) -> list[str]:
        return [name for name, child in self._running if child.poll() is not None]

    def stop(self) -> None:
        """Stop all; the broker last, as the others still close their connections to it."""
        for group in (self._running[1:], self._running[:1]):
            for _, child in group:
                if child.poll() is None:
                    child.send_signal(signal.SIGTERM)
            _reap([child for _, child in group])


def _reap(children: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    for child in children:
        try:
            child.wait(max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(
                child.pid, signal.SIGKILL
            )  # with what it started: each child leads a session of its own
            child.wait()


def start_broker(children: Children, folder: Path) -> tuple[str, str]:
    """Start Redis or Valkey from PATH, else the embedded one; return the broker's URL and the name of the program."""
    program = broker_program.find()
    port, password = free_port(), secrets.token_urlsafe(12)
    listening = f"bind 127.0.0.1\nport {port}\nrequirepass {password}\n"
    config = broker_program.configure(folder, listening)
    children.start("broker", [program, str(config)], os.environ)
    children.wait("broker", lambda: listens(port))
    return f"redis://:{password}@127.0.0.1:{port}/0", Path(program).name


def emulated_cluster(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return the folder of the emulator's SLURM commands, and the environment that gives them a state of their own."""
    installed = Path(sys.executable).parent
    if not (installed / PROGRAMS[0]).exists():
        raise DemoError("the SLURM emulator is not installed: pip install 'waldur-site-cluster[demo]'")
    commands = folder / "slurm-bin"
    turns.write(commands, (installed / name for name in PROGRAMS))
    state = {
        "SLURM_EMULATOR_STATE_FILE": str(folder / "slurm.json"),
        "SLURM_EMULATOR_TIME_FILE": str(folder / "slurm-time.json"),
        "SLURM_EMULATOR_TIME_FOLLOW_WALL": "1",
        "SLURM_EMULATOR_CLUSTER_NAME": "demo",
    }
    return commands, state


def celery(role: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "celery", "-A", "tasks", role, *options]


def free_port() -> int:
    """Return a TCP port of loopback that is free now: below those that the kernel gives to outgoing connections (32768
    and up on Linux), where somebody's connection could take it before its server does.
    """
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise DemoError(f"no free port was found between {PORTS[0]} and {PORTS[-1]}")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
