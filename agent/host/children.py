# SPDX-License-Identifier: MIT
"""Start programs as children that end with us, also when we are killed. For `cluster` and the demo."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO

PR_SET_PDEATHSIG = 1
# Loaded before any fork: between fork and exec a child of a process with threads must not load anything.
LIBC = ctypes.CDLL(None)


class Stopped(Exception):
    """The end was asked for."""


class StopRequest:
    """Made by a handler of signals, seen at the next pause.

    The handler itself raises nothing: an exception there may strike while a lock of logging or of a fork is held, which
    is then held without end.
    """

    def __init__(self) -> None:
        self._is_made = False

    def make(self, *_: object) -> None:
        self._is_made = True

    def pause(self, seconds: float) -> None:
        """Sleep for less than a second; raises Stopped where a stop is asked for."""
        time.sleep(seconds)
        if self._is_made:
            raise Stopped


def start(
    argv: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | int
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, with both streams to `output`. The kernel sends it SIGTERM when the
    thread that calls this ends: call it in the main thread.
    """
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output == subprocess.PIPE else output,
        env=dict(environment),
        start_new_session=True,
        preexec_fn=partial(_die_with, os.getpid()),
    )


def _die_with(parent: int) -> None:
    """Ask the kernel to end the child with us, even when we are killed; a child whose parent is gone by then ends
    itself. Until its program begins it has the signal handlers of Python, which would swallow SIGTERM.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
