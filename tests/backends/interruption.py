# SPDX-License-Identifier: MIT
"""Interrupts a test's main thread as soon as something is there."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType


class Interrupted(BaseException):
    """Stands for a time limit that strikes in the middle of anything."""


class interrupted_when:  # noqa: N801
    """Raises Interrupted in the main thread as soon as a file has been written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._strike)
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        if self._path.exists() and self._path.read_text():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise Interrupted
