# SPDX-License-Identifier: MIT
"""A demo as a process of its own, with a folder for temporary files by which all that it started is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agent.host.waiting import GIVE_UP_S
from rig.processes import wait_until
from tests.agent.cli.operator_site import REPOSITORY

# In the order of their start.
PARTS = ("tasks worker", "tasks beat", "tasks flower", "console")


@dataclass
class DemoProcess:
    """`folder` is the demo's TMPDIR, which every process below inherits."""

    folder: Path
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable

    def __post_init__(self) -> None:
        self.folder.mkdir()
        env = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environment, "TMPDIR": str(self.folder)}
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [self.python, "manage.py", "demo", *self.options],
                cwd=REPOSITORY,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def out(self) -> str:
        return (self.folder / "out").read_text()

    def err(self) -> str:
        return (self.folder / "err").read_text()

    def said(self, words: str) -> None:
        """Wait for these words on stdout."""
        wait_until(f"demo says {words!r}", lambda: words in self.out(), self.process, self.folder / "err")

    def has_started(self, *parts: str) -> None:
        """Wait until these parts of it run."""

        def running() -> bool:
            lines = self.command_lines()
            return all(any(f" {part} " in line for line in lines) for part in parts)

        wait_until(f"{parts} started", running, self.process, self.folder / "err")

    def pids(self) -> list[int]:
        """Every living process, parents gone or not, that has our folder in its environment or files open in it.

        Brokers write their title over their environment, so one mark is not enough.
        """
        mark, files = f"TMPDIR={self.folder}\0".encode(), f"{self.folder}/"
        return [
            pid
            for pid in _living()
            if mark in _read(pid, "environ") or any(link.startswith(files) for link in _links(pid))
        ]

    def command_lines(self) -> list[str]:
        return [_read(pid, "cmdline").decode(errors="replace").replace("\0", " ") for pid in self.pids()]

    def listening(self) -> set[str]:
        """Local addresses, as /proc prints them, on which anything of the demo listens."""
        sockets = {link for pid in self.pids() for link in _links(pid)}
        return {address for address, inode in _listeners() if f"socket:[{inode}]" in sockets}

    def ended(self) -> int:
        return self.process.wait(GIVE_UP_S)

    def has_left_nothing(self) -> None:
        wait_until(f"end of {self.command_lines()}", lambda: not self.pids())

    def leftovers(self) -> list[str]:
        """Folders that the demo has not removed."""
        return sorted(path.name for path in self.folder.glob("waldur-demo-*"))


@contextmanager
def demo(
    folder: Path,
    *options: str,
    python: str = sys.executable,
    **environment: str,
) -> Iterator[DemoProcess]:
    """A demo that is over when the block is, whatever happens in it."""
    started = DemoProcess(folder / "demo", options, environment, python)
    try:
        yield started
    finally:
        for pid in (started.process.pid, *started.pids()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        started.process.wait()


def _living() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _read(int(entry.name), "stat").rpartition(b")")[2].split()[:1] != [b"Z"]:
            yield int(entry.name)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _links(pid: int) -> list[str]:
    """What the descriptors of a process lead to."""
    try:
        return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def _listeners() -> Iterator[tuple[str, str]]:
    """Address in hex and inode of every listening TCP socket."""
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                yield fields[1].partition(":")[0], fields[9]
