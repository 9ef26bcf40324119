# SPDX-License-Identifier: MIT
"""What all processes of a test run share. Servers: the first process that asks for one has it started by the process
that began the run, of which it is a child, and with which it ends. Files that the first process makes and all copy.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from agent.core.errors import SiteAgentError
from rig import processes
from rig.child_process import is_alive

FOLDER = "TESTS_RUN_FOLDER"
"""Variable with the folder of the run."""

SOCKET = "socket"


def begin() -> None:
    """Begin a run: what is wanted is started from now on until this process ends."""
    made = tempfile.TemporaryDirectory(prefix="run-", ignore_cleanup_errors=True)
    folder = Path(made.name)
    folder.chmod(0o755)  # some tests have other users
    os.mkfifo(folder / "wanted")
    os.environ[FOLDER] = made.name
    running: list[subprocess.Popen[bytes]] = []
    atexit.register(made.cleanup)
    atexit.register(lambda: [processes.stop(server) for server in running])
    threading.Thread(target=_start_what_is_wanted, args=(folder, running), daemon=True).start()


def _start_what_is_wanted(folder: Path, running: list[subprocess.Popen[bytes]]) -> None:
    """Never ends: the kernel kills each server with the thread that has started it."""
    with (folder / "wanted").open("r+b", buffering=0) as wanted:
        while True:
            name, argv, env = json.loads(wanted.readline())
            log = folder / name / "log"
            running.append(processes.start(argv, log=log, env={**os.environ, **env}))
            (folder / name / "pid").write_text(str(running[-1].pid))


def shared(
    name: str,
    server: Callable[[Path], Sequence[str]],
    prepare: Callable[[Path], None],
    env: Mapping[str, str] | None = None,
) -> Path:
    """Return the folder of the server of that name, which listens at `SOCKET` there: `server` makes its command line
    for this place, and `prepare` writes what else is in the folder. Raises SiteAgentError where it does not start.
    """
    with _turn(name) as folder:
        place, pid = folder / SOCKET, folder / "pid"
        if not place.exists():
            prepare(folder)
            line = json.dumps([name, server(place), dict(env or {})]) + "\n"
            with (folder.parent / "wanted").open("wb", buffering=0) as wanted:
                wanted.write(line.encode())
            processes.wait_until(name, lambda: place.exists() or _has_ended(pid))
            if not place.exists():
                raise SiteAgentError(f"{name} has ended: {processes.tail(folder / 'log')}")
    return folder


def made(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder with what `make` has made in it when it was first asked for."""
    with _turn(name) as folder:
        whole, begun = folder / "whole", folder / "begun"
        if not whole.exists():
            shutil.rmtree(begun, ignore_errors=True)
            begun.mkdir()
            make(begun)
            begun.rename(whole)
    return whole


@contextmanager
def _turn(name: str) -> Iterator[Path]:
    """Give one process after the other the folder of that name."""
    if FOLDER not in os.environ:
        begin()
    folder = Path(os.environ[FOLDER], name)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    with (folder / "turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield folder


def _has_ended(pid: Path) -> bool:
    number = pid.read_text() if pid.exists() else ""
    return bool(number) and not is_alive(int(number))
