# SPDX-License-Identifier: MIT
"""A pass that is killed before one of its effects, whatever that is: a request, a file, a transaction, a program.

What a kill leaves behind differs only by the effects that came before it. Python calls an audit hook for each of them
before it happens, so that a pass runs as it is and dies anywhere. Where nothing was changed since the last place a kill
would leave the same behind: that is one place. A hook stays for the life of the process: between kills it does nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.state.store import AUDITED, NAME
from tests.step_faults import Killed

NEVER = sys.maxsize
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
READS = ("observe", "usage", "job_uses", "usage of keys", "state")
MOVES = ("os.rename", "os.link", "os.remove")
# Of folders that are made on this host, wherever that is; they are named relatively to a descriptor.
FOLDERS = ("os.mkdir", "os.chown", "os.chmod", "os.setxattr")


@dataclass
class Kill:
    """The effects of a pass on the files below `folder`, in Waldur and on the cluster; it dies at the place `step`,
    counted from one. `places` are those that it has come to.
    """

    folder: Path
    step: int = NEVER
    places: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_changed: bool = True
    _file: tuple[object, ...] = ()

    @property
    def struck(self) -> bool:
        return len(self.places) >= self.step

    def comes(self, effect: str, *, changes: bool = True) -> None:
        """Raises Killed: in each thread, and for what tidies up as well."""
        with self._lock:
            file = self._state_file()
            if not self.struck and (self._is_changed or file != self._file):
                self.places.append(effect)
                self._is_changed = False
            if self.struck:
                raise Killed(effect)
            self._file = file
            self._is_changed = self._is_changed or changes

    def _state_file(self) -> tuple[object, ...]:
        """What a transaction changes; most of them only read."""
        found = []
        for path in (self.folder / NAME, self.folder / f"{NAME}-wal"):
            with suppress(FileNotFoundError):
                about = path.stat()
                found.append((about.st_size, about.st_mtime_ns if about.st_size else 0))
        return tuple(each for each in found if each[0])

    def __str__(self) -> str:
        return f"at place {len(self.places)}, before {self.places[-1] if self.places else 'all'}"


class Watch(Kill):
    """All that a pass changes, of which nothing is kept from happening. `reading`: programs that only read."""

    def __init__(self, folder: Path, reading: tuple[str, ...]) -> None:
        super().__init__(folder)
        self._reading = reading
        self._before = self._content()

    def comes(self, effect: str, *, changes: bool = True) -> None:
        program = effect.rpartition("/bin/")[2] if effect.startswith("program ") else ""
        if changes and not (program and program.startswith(self._reading)):
            self.places.append(effect)

    def changes(self) -> list[str]:
        """What has changed since the beginning."""
        now = self._content()
        files = [name for name in {*now, *self._before} if now.get(name) != self._before.get(name)]
        return [*self.places, *files]

    def _content(self) -> dict[str, bytes]:
        """The files of the folder, but for what SQLite keeps of readers."""
        found = {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        return {name: content for name, content in found.items() if not name.endswith("-shm") and content}


_present: Kill | None = None


@contextmanager
def before(step: int, folder: Path) -> Iterator[Kill]:
    """The body is a process that is killed at the place of this number."""
    global _present
    _present = kill = Kill(folder, step)
    try:
        yield kill
    except Killed:
        assert kill.struck
    finally:
        _present = None


@contextmanager
def watching(folder: Path, *, reading: tuple[str, ...] = ()) -> Iterator[Watch]:
    """Hear of all that the body changes."""
    global _present
    _present = watch = Watch(folder, reading)
    try:
        yield watch
    finally:
        _present = None


def in_memory(effect: str) -> bool:
    """What stands in for a cluster or a directory announces its effects here; it never fails by itself."""
    comes(effect, changes=effect not in READS)
    return False


def comes(effect: str, *, changes: bool = True) -> None:
    """An effect for which Python calls no audit hook."""
    if _present is not None:
        _present.comes(effect, changes=changes)


def _audited(event: str, args: tuple[Any, ...]) -> None:
    kill = _present
    if kill is None:
        return
    if event == "http.client.send":
        request = bytes(args[1][:70]).partition(b" HTTP")[0].decode(errors="replace")
        kill.comes(f"request {request}", changes=not request.startswith("GET "))
    elif event == "subprocess.Popen":
        kill.comes(f"program {' '.join(map(os.fsdecode, args[1]))}")
    elif event == AUDITED:
        kill.comes("a transaction", changes=False)
    elif event in FOLDERS or (event == "os.rename" and args[2] >= 0):
        kill.comes(f"{event} {args[0]}")
    elif (event == "open" and args[2] & WRITES) or event in MOVES:
        if str(args[0]).startswith(str(kill.folder)):
            kill.comes(f"{event} {args[0]}")


sys.addaudithook(_audited)
