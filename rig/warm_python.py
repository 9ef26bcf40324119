# SPDX-License-Identifier: MIT
"""Our programs without their imports, which take 1 to 3 s of processor time for each process: one process of a test
run has imported them, and each program is a fork of it that takes over arguments, environment, folder and streams.

A fork does what the program does from its first line on. What a process weighs, what it imports and what Python reads
from the environment as it starts is asked of real starts, and each program is started for real by some test.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from zlib import crc32

from rig import processes, quick_client, run_servers
from simulator import fork_server
from simulator.fork_server import NUMBER_BYTES, SIZE_BYTES

LEAN_CELERY = (
    "tasks.queue.lean_celery:shut_out",
    *(
        "tasks.celery",
        "celery.bin.celery",
        "celery.apps.worker",
        "celery.concurrency.prefork",
        "kombu.transport.redis",
    ),
    *("tasks.sites", "tasks.orders", "tasks.membership", "tasks.report", "tasks.backfill", "tasks.drift"),
    *("tasks.events", "tasks.queue.consumer", "backends.slurm.plugin"),
)


class WarmPython:
    """A Python with modules imported already, which serves in a folder."""

    def __init__(self, folder: Path) -> None:
        # Works as `python` does for FILE, -m MODULE and -c SCRIPT.
        self.program = folder / "python"
        self._place = folder / run_servers.SOCKET

    def write_client(self, client: Path, *words: str) -> None:
        """Make a program that does what this Python does with these words and its own arguments after them."""
        quick_client.write_client(client, self._place, *words)

    def popen(self, words: Sequence[str], *, log: Path, env: Mapping[str, str]) -> WarmProcess:
        """Start what follows `python` on a command line, in the folder of its log."""
        parts = [
            str(log.parent),
            str(len(words)),
            *words,
            *(f"{name}={value}" for name, value in {**processes.coverage(), **env}.items()),
        ]
        request = "\0".join(parts).encode("utf-8", "surrogateescape")
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.connect(str(self._place))
        with open(os.devnull, "rb") as nothing, log.open("ab") as output:
            streams = [nothing.fileno(), output.fileno(), output.fileno()]
            socket.send_fds(server, [len(request).to_bytes(SIZE_BYTES, "little")], streams)
        server.sendall(request)
        return WarmProcess(server)


class WarmProcess:
    """A fork, with the names of subprocess.Popen."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self.pid = _read_number(server)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._server], [], [], 0)[0]:
            self.returncode = _read_number(self._server)
            self._server.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._server], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, which is not said yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _read_number(server: socket.socket) -> int:
    answer = server.recv(NUMBER_BYTES)
    if not answer:
        raise processes.RealPartError("the warm Python has ended")
    return int.from_bytes(answer, "little", signed=True)


@cache
def started(*modules: str, **env: str) -> WarmPython:
    """Return the one of this run of tests that has imported these modules."""
    name = f"python-{crc32(repr((modules, env)).encode())}"
    folder = run_servers.shared(
        name,
        lambda place: [sys.executable, fork_server.__file__, str(place), *modules],
        lambda folder: quick_client.write_client(folder / "python", folder / run_servers.SOCKET),
        {"PYTHONPATH": str(processes.REPOSITORY), **env},
    )
    return WarmPython(folder)


def of_workers() -> WarmPython:
    """Return the one that has what a worker has, and no more: a process of a pool is replaced when it is too large."""
    from tasks.queue import lean_celery

    return started(*LEAN_CELERY, **lean_celery.MEMORY)


def of_commands() -> WarmPython:
    """Return the one that has what the commands of manage.py have, and what they import and make as they run."""
    from agent.cli.commands.shared import LazyCommand
    from agent.cli.main import COMMANDS

    bodies = (command.body for command in COMMANDS.values() if isinstance(command, LazyCommand))
    as_they_run = ("backends.slurm.plugin", "kombu.transport.redis", "rig.warm_python:read_a_configuration")
    return started("tasks.events", "tasks.queue.inspection", *bodies, *as_they_run)


def of_programs() -> WarmPython:
    """Return the one that has what stand-ins for the programs of a head node and of MAM have."""
    return started("json", "typing", "fcntl", "simulator.mam.programs")


def read_a_configuration() -> None:
    """Make the schemas of the settings, which takes longer than to read by them."""
    from agent.config import load

    load.require(processes.REPOSITORY / "examples" / "slurm-and-moab.yaml", {}, with_logins=False)


def python() -> str:
    """Return what takes the place of `sys.executable` in the command of a script that uses the product."""
    return str(of_workers().program)
