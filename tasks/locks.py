# SPDX-License-Identifier: MIT
"""Locks that keep two tasks from doing the same work, and markers that keep beat from queueing a task twice.

They save work; correctness never rests on them. With Redis they are keys that expire after the time limit; with
another broker they are lock files of this node. A lock's value begins with the worker's name and the process's number,
so that a worker which starts can free the locks of its killed predecessor, and its processes those of one that was
killed among them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import redis

from agent.core.errors import SiteAgentError
from agent.host import files
from tasks.limits import LOCK_TTL_S

log = logging.getLogger(__name__)

LOCK_PREFIX = "site-lock:"
MARKER_PREFIX = "site-queued:"
# Of a period.
MARKER_SHARE = 0.9
RELEASE_WAITS_S = (0.0, 0.2, 1.0, 3.0)
# Deletes a lock that still has this value.
FREE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class Locks(Protocol):
    def take(self, name: str) -> bool:
        """Take a lock; False when another task holds it."""
        ...

    def release(self, name: str) -> None: ...


class RedisLocks:
    """Locks in the broker's Redis. `client` is any redis-py client, `owner` the worker's node name."""

    def __init__(self, client: Any, owner: str) -> None:
        self._client = client
        self._owner = owner
        self._held: dict[str, tuple[Any, str]] = {}

    def take(self, name: str) -> bool:
        lock = self._client.lock(LOCK_PREFIX + name, timeout=LOCK_TTL_S, thread_local=False)
        token = f"{self._owner} {os.getpid()} {uuid.uuid4().hex}"
        try:
            is_ours = lock.acquire(blocking=False, token=token)
            if not is_ours and self._free_of_dead(name):
                is_ours = lock.acquire(blocking=False, token=token)
            if not is_ours:
                return False
        except redis.RedisError as error:
            log.warning("no lock for %s, going on without: %s", name, error)
        # Also after an error: perhaps only the answer was lost.
        self._held[name] = (lock, token)
        return True

    def release(self, name: str) -> None:
        """Free a lock. Try again where Redis refuses the old connection after a restart: the lock would keep everybody
        out until it expires. Leave it to expire where Redis is away for longer.
        """
        lock, token = self._held.pop(name, (None, ""))
        if lock is None:
            return
        for wait_s in RELEASE_WAITS_S:
            time.sleep(wait_s)
            try:
                lock.do_release(token.encode())
            except redis.ConnectionError:
                continue
            except redis.RedisError:
                return  # expired, and perhaps taken by another
            return

    def _free_of_dead(self, name: str) -> bool:
        """Free a lock whose holder is a process of this worker that has ended without giving it back (the kernel's OOM
        killer, a crash): its task is handed out again at once, and would find nobody to wait for.
        """
        value = self._client.get(LOCK_PREFIX + name)
        owner, _, rest = (value.decode() if isinstance(value, bytes) else "").partition(" ")
        pid = rest.partition(" ")[0]
        if owner != self._owner or not pid.isdecimal() or Path("/proc", pid).exists():
            return False
        return bool(self._client.eval(FREE, 1, LOCK_PREFIX + name, value))

    def free_predecessors(self) -> int:
        """Delete the locks of a dead worker of our name; return how many. Wrong while such a worker lives."""
        freed = 0
        for key in self._client.scan_iter(match=f"{LOCK_PREFIX}*"):
            value = self._client.get(key)
            owner = value.decode() if isinstance(value, bytes) else str(value or "")
            if owner.startswith(f"{self._owner} "):
                freed += int(self._client.delete(key))
        return freed


class FileLocks:
    """Locks of this node, for brokers other than Redis."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "locks"
        self._held: dict[str, int] = {}

    def take(self, name: str) -> bool:
        path = self._folder / f"task-{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.lock"
        try:
            with files.acting_as_owner(self._folder):
                files.make_folder(self._folder)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SiteAgentError(f"cannot make a lock in {self._folder}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._held[name] = descriptor
        return True

    def release(self, name: str) -> None:
        descriptor = self._held.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)


class HeldLocks:
    """Locks taken within one task, released together at its end."""

    def __init__(self, locks: Locks, stack: ExitStack) -> None:
        self._locks = locks
        self._stack = stack

    def take(self, name: str) -> bool:
        if not self._locks.take(name):
            return False
        self._stack.callback(self._locks.release, name)
        return True


@contextmanager
def held(locks: Locks) -> Iterator[HeldLocks]:
    """Release at the end of the body what is taken within."""
    with ExitStack() as stack:
        yield HeldLocks(locks, stack)


def mark_queued(client: Any, task: str, offering_uuid: str, period_s: float) -> bool:
    """Set the marker of a periodic task; False when one is in the queue already.

    It expires a little before the task (beat_schedule: one period), so that the next period can queue one: a task that
    expired in the queue never clears its marker.
    """
    key = f"{MARKER_PREFIX}{task}:{offering_uuid}"
    return bool(client.set(key, "1", nx=True, px=max(1, int(1000 * MARKER_SHARE * period_s))))


def unmark_queued(client: Any, task: str, offering_uuid: str) -> None:
    client.delete(f"{MARKER_PREFIX}{task}:{offering_uuid}")
