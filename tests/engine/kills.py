# SPDX-License-Identifier: MIT
"""A pass that is killed before its n-th effect, whatever that is: a request, a file, a transaction, a program.

What a kill leaves behind differs only by the effects that came before it. Python tells an audit hook of each of them
before it happens, so that a pass runs as it is and dies anywhere. A hook stays for the life of the process: between
kills it does nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NEVER = sys.maxsize
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
MOVES = ("os.rename", "os.link", "os.remove")


class Killed(BaseException):
    """Stands for SIGKILL: nothing in between may catch it."""


@dataclass
class Kill:
    """The effects of a pass below `folder`, in Waldur and on the cluster; from the n-th on none happens any more."""

    folder: str
    step: int = NEVER
    effects: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def struck(self) -> bool:
        return len(self.effects) >= self.step

    def comes(self, effect: str) -> None:
        """Raises Killed: in each thread, and for what tidies up as well."""
        with self._lock:
            if not self.struck:
                self.effects.append(effect)
            if self.struck:
                raise Killed(effect)

    def __str__(self) -> str:
        return f"before effect {len(self.effects)}: {self.effects[-1] if self.effects else 'none'}"


_present: Kill | None = None


@contextmanager
def before(step: int, folder: Path) -> Iterator[Kill]:
    """The body is a process that is killed before its effect of this number, counted from one."""
    global _present  # noqa: PLW0603  a hook is never taken away
    _present = kill = Kill(str(folder), step)
    try:
        yield kill
    except Killed:
        assert kill.struck
    finally:
        _present = None


def in_memory(effect: str) -> bool:
    """What stands in for a cluster or a directory tells of its effects here; it never fails by itself."""
    if _present is not None:
        _present.comes(effect)
    return False


def _audited(event: str, args: tuple[Any, ...]) -> None:
    kill = _present
    if kill is None:
        return
    if event == "http.client.send":
        kill.comes(f"request {bytes(args[1][:70]).partition(b' HTTP')[0]!r}")
    elif event == "subprocess.Popen":
        kill.comes(f"program {args[0]}")
    elif event == "sqlite3.connect" and kill.folder in str(args[0]):
        kill.comes(f"transaction in {args[0]}")
    elif (event == "open" and args[2] & WRITES) or event in MOVES:
        if str(args[0]).startswith(kill.folder):
            kill.comes(f"{event} {args[0]}")


sys.addaudithook(_audited)
