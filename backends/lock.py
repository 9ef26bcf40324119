# SPDX-License-Identifier: MIT
"""One writer per accounting database: a lock file that workers, `run --once` and all else of ours take on this node.

Ten `sacctmgr` writes at once kept 3 of 10 changes and ended slurmdbd (22.05). The lock belongs to the open
file, not to the process: a child that inherits the descriptor holds it until it ends, even when we are killed.

A lock file has a second name in `state_dir` itself: who deletes the folder of the locks, as if they were stale, lets
nobody in beside a writer.

Who has another `state_dir` has another lock file, and is not kept out. Where two writers would cost money a second
file is taken as well, in a folder that all agents of the host share.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import re
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from agent.core.errors import BackendError, BackendUnavailable, ClusterBusy
from agent.host import files

log = logging.getLogger(__name__)

WAIT_S = 120.0
POLL_S = 0.05
# People at a terminal are told then that a writer is waited for.
TOLD_AFTER_S = 10.0


class WriteLock:
    """Context manager, re-entrant within one thread: `with lock` around a batch keeps other writers out of it.

    `target`: what is written to, and what all its writers with this state_dir call alike, whatever their settings.
    `shared`: a second file, for writers with another state_dir. What a child has to inherit to hold the lock is in
    `descriptors`.
    """

    def __init__(
        self, state_dir: Path, target: str, *, wait_s: float = WAIT_S, shared: Path | None = None
    ) -> None:
        self.path = state_dir / "locks" / f"writes-{re.sub(r'[^A-Za-z0-9_.-]', '_', target)}.lock"
        self._second_name = state_dir / f".{self.path.name}"
        self.descriptors: tuple[int, ...] = ()
        self._shared = shared
        self._target = target
        self._wait_s = wait_s
        self._thread = threading.RLock()
        self._depth = 0

    def __enter__(self) -> int:
        if not self._thread.acquire(timeout=self._wait_s):
            raise ClusterBusy(
                f"{self._target}: another thread has been writing for over {self._wait_s:.0f} s"
            )
        with ExitStack() as undo:
            undo.callback(self._thread.release)
            if self._depth == 0:
                self.descriptors = self._acquire()
            undo.pop_all()
        self._depth += 1
        return self.descriptors[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            _close(self.descriptors)
            self.descriptors = ()
        self._thread.release()

    def check(self) -> None:
        """Open the lock file without waiting for it. Raises BackendError where that is impossible."""
        os.close(self._opened())

    def unshared(self) -> str:
        """Return why writers with another state_dir are not kept out; empty where they are, or nobody asked for it."""
        try:
            _close(self._opened_shared())
        except OSError as error:
            return (
                f"the lock {self._shared} cannot be opened: {error.strerror}. Agents on this host with another "
                "state_dir are not kept out"
            )
        return ""

    def _opened(self) -> int:
        try:
            return _open(self.path, self._second_name)
        except OSError as error:
            if error.errno in files.SHORT:
                raise BackendUnavailable(
                    f"cannot open the write lock {self.path}: {error.strerror} on this host; tried again later"
                ) from error
            raise BackendError(
                f"cannot open the write lock {self.path}: {error.strerror}. state_dir must be writable for the "
                "user that the agent runs as."
            ) from error

    def _opened_shared(self) -> tuple[int, ...]:
        return (_open(self._shared),) if self._shared else ()

    def _acquire(self) -> tuple[int, ...]:
        """Lock the files, always in this order, so that two writers never wait for each other."""
        deadline_s = time.monotonic() + self._wait_s
        with ExitStack() as undo:
            own = self._opened()
            undo.callback(os.close, own)
            self._await(own, self.path, deadline_s)
            if not _is_there(own, self.path):
                raise ClusterBusy(
                    f"{self._target}: {self.path} was deleted while we waited for it; tried again later"
                )
            shared: tuple[int, ...] = ()
            try:
                shared = self._opened_shared()
            except OSError as error:
                log.warning("writing without the lock %s: %s", self._shared, error.strerror)
            undo.callback(_close, shared)
            if self._shared and shared:
                self._await(shared[0], self._shared, deadline_s)
            undo.pop_all()
        return (own, *shared)

    def _await(self, descriptor: int, path: Path, deadline_s: float) -> None:
        tell_at_s = time.monotonic() + TOLD_AFTER_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    raise ClusterBusy(
                        f"{self._target}: another write has held {path} for over {self._wait_s:.0f} s; "
                        "it is left to finish, ours is tried again later"
                    ) from None
                if time.monotonic() >= tell_at_s:
                    tell_at_s = math.inf
                    log.warning(
                        "%s: waiting for another write to end, which holds %s. Ctrl-C is safe: ours has not begun",
                        self._target,
                        path,
                    )
                time.sleep(POLL_S)


def _open(path: Path, second_name: Path | None = None) -> int:
    """Open the file with the rights of its folder's owner: root makes nothing that this user cannot open.

    Under whichever of its names it is still there, and then it has both again. Not every file system can do that.
    """
    with files.acting_as_owner(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        if second_name is not None:
            _link(second_name, path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if second_name is not None:
            _link(path, second_name)
        return descriptor


def _link(path: Path, name: Path) -> None:
    with suppress(OSError):
        os.link(path, name, follow_symlinks=False)


def _is_there(descriptor: int, path: Path) -> bool:
    """Return whether an open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except OSError:
        return False


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
