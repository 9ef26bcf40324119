# SPDX-License-Identifier: MIT
"""One writer per accounting database: a lock file that workers, `run --once` and all else of ours take on this node.

Ten `sacctmgr` writes at once kept 3 of 10 changes and ended slurmdbd (22.05). The lock belongs to the open
file, not to the process: a child that inherits the descriptor holds it until it ends, even when we are killed.

A lock file has a second name in `state_dir` itself: who deletes the folder of the locks, as if they were stale,
lets no second writer in. Where all of `state_dir` is deleted, the writer notices before its next command and stops;
and who locks the new file first looks for a process that still holds the deleted one.

Who waits holds a second file, shared with all who wait; so the holder sees that others wait, and lets them in between
two commands (`give_way`). Those who wait for an order have a file of their own, and come first.

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
# A writer with many commands lets others in between two of them after this time; for an order at once.
TURN_S = 4.0
# Who waits takes a free lock within a poll. Who has not done so after this time is stopped, and is not waited for.
COURTESY_S = 1.0
# After this time a warning is logged that a writer is waited for, for people at a terminal.
WARNED_AFTER_S = 10.0
# The namespace of all processes of a host (Linux: PROC_PID_INIT_INO).
HOST_PIDS = "pid:[4026531836]"
# Its process, file system and file.
LISTED_LOCK = re.compile(r"^\d+: FLOCK +ADVISORY +WRITE (-?\d+) ([0-9a-f]+:[0-9a-f]+):(\d+) ", re.MULTILINE)


class WriteLock:
    """Context manager, re-entrant within one thread: `with lock` around a batch keeps other writers out of it.

    `target`: what is written to, and what all its writers with this state_dir call alike, whatever their settings.
    `shared`: a second file, for writers with another state_dir. `is_urgent`: a person waits for an order of Waldur;
    such writers come before the others. What a child has to inherit to hold the lock is in `descriptors`.

    A block inside of another asks whether the lock is still the one that others wait for: each command is such a block.
    """

    def __init__(
        self,
        state_dir: Path,
        target: str,
        *,
        wait_s: float = WAIT_S,
        shared: Path | None = None,
        is_urgent: bool = False,
    ) -> None:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", target)
        self.path = state_dir / "locks" / f"writes-{name}.lock"
        self._urgent = self.path.with_name(f"urgent-{name}.lock")
        self._waiting = self.path.with_name(f"waiting-{name}.lock")
        self.is_urgent = is_urgent
        self._taken_s = 0.0
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
            if not self.descriptors:
                self._acquire()
            elif _is_gone(self.descriptors[0], self.path):
                raise ClusterBusy(
                    f"{self._target}: {self.path} was deleted while we held it, and others are no longer kept out. "
                    "Nothing more is written; tried again later. Never delete state_dir while an agent runs"
                )
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

    def give_way(self) -> None:
        """Between two commands: let in who waits for an order, and after a while whoever waits. Does nothing inside of
        another block. Raises ClusterBusy when the lock does not come back; the block must then be left.
        """
        if self._depth != 1:
            return
        is_long = time.monotonic() - self._taken_s >= TURN_S
        if self._is_behind_order() or (is_long and self._is_awaited()):
            _close(self.descriptors)
            self.descriptors = ()
            self._acquire(is_turn_over=True)

    def check(self) -> None:
        """Open the lock file without waiting for it. Raises BackendError where that is impossible."""
        os.close(self._opened())

    def unshared(self) -> str:
        """Return why writers with another state_dir are not kept out; empty where they are, or it was not asked for."""
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

    def _acquire(self, *, is_turn_over: bool = False) -> None:
        """Lock the files, always in this order, so that two writers never wait for each other. `is_turn_over`: whoever
        waits comes first.
        """
        deadline_s = time.monotonic() + self._wait_s
        with ExitStack() as undo:
            own = self._opened()
            undo.callback(os.close, own)
            self._await(own, self.path, deadline_s, is_turn_over=is_turn_over)
            if not _is_there(own, self.path):
                raise ClusterBusy(
                    f"{self._target}: {self.path} was deleted while we waited for it; tried again later"
                )
            self._refuse_deleted(own)
            shared: tuple[int, ...] = ()
            try:
                shared = self._opened_shared()
            except OSError as error:
                log.warning("writing without the lock %s: %s", self._shared, error.strerror)
            undo.callback(_close, shared)
            if self._shared and shared:
                self._await(shared[0], self._shared, deadline_s)
            undo.pop_all()
        self.descriptors = (own, *shared)
        self._taken_s = time.monotonic()

    def _refuse_deleted(self, own: int) -> None:
        """Look once in the life of a lock file whether a process holds a deleted one of its name; then it has a byte.
        Raises ClusterBusy.
        """
        if os.fstat(own).st_size:
            return
        holder = _holder_of_deleted(self.path) if _may_be_others(own) else ""
        if holder:
            raise ClusterBusy(
                f"{self._target}: {self.path} was deleted under process {holder}, which still writes; it is left to "
                "finish, ours is tried again later"
            )
        with suppress(OSError):  # a full disk: the next one looks again
            os.write(own, b"\n")

    def _await(self, descriptor: int, path: Path, deadline_s: float, *, is_turn_over: bool = False) -> None:
        warn_at_s = time.monotonic() + WARNED_AFTER_S
        polite_until_s = time.monotonic() + COURTESY_S
        with ExitStack() as place:
            is_queued = False
            while True:
                if _flocked(descriptor, fcntl.LOCK_EX):
                    others_first = self._is_awaited() if is_turn_over else self._is_behind_order()
                    if not others_first or time.monotonic() >= polite_until_s:
                        return
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
                else:
                    is_turn_over = False
                    polite_until_s = time.monotonic() + COURTESY_S
                    if not is_queued:
                        is_queued = True
                        place.callback(_close, self._queued())
                    if time.monotonic() >= deadline_s:
                        raise ClusterBusy(
                            f"{self._target}: another write has held {path} for over {self._wait_s:.0f} s; "
                            "it is left to finish, ours is tried again later"
                        )
                    if time.monotonic() >= warn_at_s:
                        warn_at_s = math.inf
                        log.warning(
                            "%s: waiting for another write to end, which holds %s. Ctrl-C is safe: ours has not begun",
                            self._target,
                            path,
                        )
                time.sleep(POLL_S)

    def _queued(self) -> tuple[int, ...]:
        """Return the descriptor by which others see that we wait; none where that file cannot be opened."""
        with suppress(OSError):
            descriptor = _open(self._urgent if self.is_urgent else self._waiting)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            return (descriptor,)
        return ()

    def _is_awaited(self) -> bool:
        return _is_held(self._urgent) or _is_held(self._waiting)

    def _is_behind_order(self) -> bool:
        return not self.is_urgent and _is_held(self._urgent)


def _flocked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_held(path: Path, *, follows: bool = False) -> bool:
    """Return whether a process holds a lock on a file. One that cannot be opened counts as not held."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW))
    except OSError:
        return False
    try:
        return not _flocked(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _may_be_others(own: int) -> bool:
    """Return whether a file may be locked on the file system of ours, besides it. To look at the open files of all
    processes takes a hundred times as long. The kernel lists the locks of a host, also those that a process left to
    its children; in a container it does not list these.
    """
    inode, pid = os.fstat(own).st_ino, os.getpid()
    try:
        is_host = os.readlink("/proc/self/ns/pid") == HOST_PIDS
        lists = [Path("/proc/locks").read_text(encoding="ascii") for _ in range(2)]
    except OSError:
        return True
    if not is_host or lists[0] != lists[1]:  # it is not read at once
        return True
    found = LISTED_LOCK.findall(lists[0])
    # The list may have another number for a file system than fstat.
    ours = [device for process, device, file in found if (int(process), int(file)) == (pid, inode)]
    return len(ours) != 1 or [device for _, device, _ in found].count(ours[0]) > 1


def _holder_of_deleted(path: Path) -> str:
    """Return the number of a process that holds the lock of a deleted file that had this path; empty where there is
    none, among those whose files the kernel shows us (root: all; others: their own).
    """
    deleted = f"{os.path.realpath(path)} (deleted)"
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):  # not ours to look at, or ended since
            for number in os.listdir(f"/proc/{process}/fd"):
                link = f"/proc/{process}/fd/{number}"
                try:
                    if os.readlink(link) == deleted and _is_held(Path(link), follows=True):
                        return process
                except OSError:
                    continue
    return ""


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


def _is_gone(descriptor: int, path: Path) -> bool:
    """Return whether an open file is certainly no longer the one of this name: a folder that cannot be looked into
    (root that acts as another user) does not show that.
    """
    try:
        return not os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
