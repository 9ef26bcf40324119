# SPDX-License-Identifier: MIT
"""One writer per accounting database: a lock file that workers, `run --once` and all else of ours take on this node.

Ten `sacctmgr` writes at once kept 3 of 10 changes and ended slurmdbd (22.05). The lock belongs to the open
file, not to the process: a child that inherits the descriptor holds it until it ends, even when we are killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from pathlib import Path
from types import TracebackType

from agent.core.errors import BackendError, ClusterBusy

WAIT_S = 120.0
POLL_S = 0.05


class WriteLock:
    """Context manager, re-entrant within one thread: `with lock` around a batch keeps other writers out of it.

    `target`: what is written to, and what all its writers on this host call alike, whatever their settings.
    """

    def __init__(self, state_dir: Path, target: str, *, wait_s: float = WAIT_S) -> None:
        self.path = state_dir / "locks" / f"writes-{re.sub(r'[^A-Za-z0-9_.-]', '_', target)}.lock"
        self._target = target
        self._wait_s = wait_s
        self._thread = threading.RLock()
        self._descriptor = -1
        self._depth = 0

    def __enter__(self) -> int:
        if not self._thread.acquire(timeout=self._wait_s):
            raise ClusterBusy(
                f"{self._target}: another thread has been writing for over {self._wait_s:.0f} s"
            )
        try:
            if self._depth == 0:
                self._descriptor = self._acquire()
        except BaseException:
            self._thread.release()
            raise
        self._depth += 1
        return self._descriptor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            os.close(self._descriptor)
        self._thread.release()

    def check(self) -> None:
        """Whether the lock could be taken at all. Raises BackendError, and waits for nobody."""
        os.close(self._opened())

    def _opened(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BackendError(
                f"cannot open the write lock {self.path}: {error.strerror}. state_dir must be writable for the "
                "user that the agent runs as."
            ) from error

    def _acquire(self) -> int:
        descriptor = self._opened()
        deadline_s = time.monotonic() + self._wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    os.close(descriptor)
                    raise ClusterBusy(
                        f"{self._target}: another write has held {self.path} for over {self._wait_s:.0f} s; "
                        "it is left to finish, ours is tried again later"
                    ) from None
                time.sleep(POLL_S)
