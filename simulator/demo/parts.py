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
from agent.host.waiting import end_of, wait_until
from simulator.demo import emulator

STOP_TIMEOUT_S = 10.0
PAUSE_S = 0.05
PORTS = range(15_000, 32_000)
# The folder of the commands of the emulated SLURM.
COMMANDS = "slurm-bin"
SERVERS = ("broker", "emulator")
# What follows the interpreter for a command of the operator's.
COMMAND = ("-c", "from agent.cli.main import main; main()")


class DemoError(SiteAgentError):
    """A part of the demo cannot be started, or a command of it failed."""


class Children:
    """Children of the demo: those that serve are stopped when the others have ended."""

    def __init__(self, folder: Path, stop_request: StopRequest, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._stop_request = stop_request
        self.say = say
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        with self.log(name).open("ab") as output:
            child = start_child(argv, environment, output)
        self._running.append((name, child))

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def run(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run a program to its end. Raises DemoError with what it printed, and Stopped."""
        self.start(name, argv, environment)
        child = self._running[-1][1]
        while child.poll() is None:
            self._stop_request.pause(PAUSE_S)
        self._running.pop()
        if child.returncode:
            printed = self.log(name).read_text(errors="replace").strip()
            raise DemoError(f"`{name}` {end_of(child)}: {printed}")

    def wait(self, name: str, ready: Callable[[], bool]) -> None:
        """Wait for a child until `ready` holds; raises NeverCame."""

        def log() -> str:
            last = self.log(name).read_text(errors="replace").strip().splitlines()[-5:]
            return f"{self.log(name)} says: {' / '.join(last) or 'nothing'}"

        child = dict(self._running)[name]
        wait_until(
            name,
            ready,
            ended=lambda: end_of(child) or self._lost(),
            log=log,
            say=self.say,
            pause=lambda: self._stop_request.pause(PAUSE_S),
        )

    def wait_for_work(self, what: str, ready: Callable[[], bool], pause_s: float) -> None:
        """Wait for what all children bring about together; raises NeverCame."""
        wait_until(
            what,
            ready,
            ended=self._lost,
            log=lambda: f"logs are in {self._folder}",
            say=self.say,
            pause=lambda: self._stop_request.pause(pause_s),
        )

    def _lost(self) -> str:
        """Return why what all bring about together will not come; empty while all run."""
        dead = self.dead()
        return f"will not come: {' and '.join(dead)}" if dead else ""

    def dead(self) -> list[str]:
        """Return the children that have ended, with how."""
        return [f"{name} {end}" for name, child in self._running if (end := end_of(child))]

    def stop(self) -> None:
        """Stop all; servers last: the others still close their connections, and end what they are at."""
        for serve in (False, True):
            group = [child for name, child in self._running if (name in SERVERS) is serve]
            for child in group:
                if child.poll() is None:
                    child.send_signal(signal.SIGTERM)
            _reap(group)


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
    children.say(f"starting the broker, {Path(program).name}")
    port, password = free_port(), secrets.token_urlsafe(12)
    listening = f"bind 127.0.0.1\nport {port}\nrequirepass {password}\n"
    config = broker_program.configure(folder, listening)
    children.start("broker", [program, str(config)], os.environ)
    # By its own word: on a port that another process took meanwhile, that one listens.
    children.wait("broker", lambda: b"Ready to accept connections" in children.log("broker").read_bytes())
    return f"redis://:{password}@127.0.0.1:{port}/0", Path(program).name


def require_emulator() -> None:
    """Raise DemoError where the emulated SLURM is not installed."""
    if not emulator.PROGRAMS[0].exists():
        raise DemoError("the SLURM emulator is not installed: pip install 'waldur-site-cluster[demo]'")


def start_emulator(children: Children, folder: Path) -> Path:
    """Start the emulated SLURM; return the folder of its commands."""
    children.say("starting the emulated SLURM")
    commands, place = folder / COMMANDS, folder / "emulator.socket"
    emulator.write_clients(commands, place)
    children.start("emulator", emulator.server(place), os.environ)
    children.wait("emulator", place.exists)
    return commands


def celery(role: str, *options: str) -> list[str]:
    """Return the command line of a role of the agent's cluster; Flower is a command of Celery's own."""
    module = "celery" if role == "flower" else "tasks.queue.lean_celery"
    return [sys.executable, "-m", module, "-A", "tasks", role, *options]


def free_port() -> int:
    """Return a TCP port of loopback that is free now: below those that the kernel gives to outgoing connections (32768
    and up on Linux), where another process' connection could take it before its server does.
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
