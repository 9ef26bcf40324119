# SPDX-License-Identifier: MIT
"""Ends of commands that have begun: the main thread is interrupted, or a time-out strikes, when something is there."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from agent.core.errors import BackendUnavailable

TIMEOUTS_S = (1.0, 10.0, 100.0, 600.0)


class Interrupted(BaseException):
    """Stands for a time limit that strikes in the middle of anything."""


class interrupted_in:  # noqa: N801
    """Raises Interrupted in the main thread while it is in a function of this name, once a file has been written: a
    command may write before its reader waits for it.
    """

    def __init__(self, function: str, path: Path) -> None:
        self._function = function
        self._path = path

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._strike)
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        functions = (caller.f_code.co_name for caller, _ in traceback.walk_stack(frame))
        if self._function in functions and self._path.exists() and self._path.read_text():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise Interrupted


def killed_when_begun(run: Callable[[float], object], has_begun: Callable[[str], object]) -> str:
    """Run a command that does not end, with longer and longer time-outs, until one has struck after the command had
    begun, which is asked with the text of the error; return that text.
    """
    for timeout_s in TIMEOUTS_S:
        with pytest.raises(BackendUnavailable, match=f"gave no answer within {timeout_s:.0f} s: ") as error:
            run(timeout_s)
        if has_begun(str(error.value)):
            return str(error.value)
    raise AssertionError(f"it did not begin within {timeout_s:.0f} s")
