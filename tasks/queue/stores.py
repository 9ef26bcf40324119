# SPDX-License-Identifier: MIT
"""Where the work queue keeps its records: in Redis, in this host's state with another broker, or in this process.

A record is a small JSON object with a name and an end of life. A store does one thing: it replaces a record by what
a function makes of it, as one step that no other process can come between.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from redis import ConnectionError as RedisConnectionError
from redis import RedisError

from agent.core.bounded_json import read_json
from agent.core.events import QueueUnavailable
from agent.host import files

PREFIX = "site-"
GUARD = "guard.lock"
# How Redis's answers begin when its disk or its memory is full, as redis-py hands them on.
REDIS_IS_FULL = ("MISCONF", "OOM", "command not allowed when used memory")
Record = dict[str, Any]
Answer = TypeVar("Answer")


class Step(NamedTuple, Generic[Answer]):
    """What becomes of a record, and the answer of the update."""

    # None: it is removed.
    record: Record | None
    answer: Answer
    # How long the record lives from now on; None leaves the end of its life where it is.
    lives_s: float | None = None


class NoRoom(QueueUnavailable):
    """No records are taken by this host's disk, Redis's, or its memory, which seconds of waiting seldom change. What is
    recorded already may still be read.
    """


def as_it_is(record: Record | None) -> Step[Record | None]:
    """Read a record: the change that changes nothing."""
    return Step(record, record)


class Store(Protocol):
    """Records that several processes update.

    A record of entries with a mark each (`add`, `remove`) may be large; it is read as every other one.
    """

    # All who queue tasks and all who run them use this store.
    knows_queue: bool

    def update(self, name: str, change: Callable[[Record | None], Step[Answer]]) -> Answer:
        """Replace a record by what `change` makes of it, and return its answer. `change` may be called more than once,
        and leaves what it is given as it is. Raises QueueUnavailable.
        """
        ...

    def add(self, name: str, entries: Mapping[str, str], lives_s: float) -> int:
        """Add entries, or give them new marks, and return how many there are. Raises QueueUnavailable."""

        def added(record: Record | None) -> Step[int]:
            both = {**(record or {}), **entries}
            return Step(both, len(both), lives_s)

        return self.update(name, added)

    def entries(self, name: str) -> Mapping[str, str]:
        """Return the entries of a name with their marks. Raises QueueUnavailable."""
        return self.update(name, as_it_is) or {}

    def remove(self, name: str, entries: Mapping[str, str]) -> None:
        """Remove the entries that still have these marks. Raises QueueUnavailable."""

        def removed(record: Record | None) -> Step[None]:
            left = {entry: mark for entry, mark in (record or {}).items() if entries.get(entry) != mark}
            return Step(left or None, None)

        self.update(name, removed)

    def names(self, beginning: str) -> list[str]:
        """Return the names of records that begin so. Raises QueueUnavailable."""
        ...

    def process(self) -> str:
        """Return what this process writes down as its name."""
        ...

    def has_ended(self, process: str, *, at_start: bool = False) -> bool:
        """Return whether the process of that name is known to have ended. `at_start`: this worker has just started, and
        its own name was a predecessor's.
        """
        ...


class MemoryStore(Store):
    """Records in the memory of this process."""

    knows_queue = True

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, tuple[Record, float]] = {}

    def update(self, name: str, change: Callable[[Record | None], Step[Answer]]) -> Answer:
        with self._lock:
            now_s = self._clock()
            found, until_s = self._records.get(name, (None, 0.0))
            before = found if until_s > now_s else None
            step = change(before)
            if step.record is None:
                self._records.pop(name, None)
            elif _is_written(step, before):
                self._records[name] = (step.record, until_s if step.lives_s is None else now_s + step.lives_s)
            return step.answer

    def names(self, beginning: str) -> list[str]:
        with self._lock:
            return [name for name in self._records if name.startswith(beginning)]

    def process(self) -> str:
        return "this"

    def has_ended(self, process: str, *, at_start: bool = False) -> bool:
        return False


class RedisStore(Store):
    """Records in the broker's Redis. `client` is any redis-py client, `owner` the worker's node name."""

    knows_queue = True

    def __init__(self, client: Any, owner: str) -> None:
        self._client = client
        self._owner = owner

    def update(self, name: str, change: Callable[[Record | None], Step[Answer]]) -> Answer:
        key = PREFIX + name
        answers: list[Answer] = []
        before = _parsed(self._asked_twice(lambda: self._client.get(key)))
        step = change(before)
        if (step.record, step.lives_s) == (before, None):
            return step.answer

        def apply(pipe: Any) -> None:
            before = _parsed(pipe.get(key))
            step = change(before)
            answers.append(step.answer)
            pipe.multi()
            if step.record is None and before is not None:
                pipe.delete(key)
            elif _is_written(step, before):
                life = {"keepttl": True} if step.lives_s is None else {"px": max(1, int(1000 * step.lives_s))}
                pipe.set(key, json.dumps(step.record), **life)

        self._asked_twice(lambda: self._client.transaction(apply, key))
        return answers[-1]

    def add(self, name: str, entries: Mapping[str, str], lives_s: float) -> int:
        key = PREFIX + name
        pipe = self._client.pipeline
        added = self._asked_twice(
            lambda: pipe().hset(key, mapping=dict(entries)).expire(key, int(lives_s)).hlen(key).execute()
        )
        return int(added[-1])

    def entries(self, name: str) -> Mapping[str, str]:
        found = self._asked_twice(lambda: self._client.hgetall(PREFIX + name))
        return {entry.decode(): mark.decode() for entry, mark in found.items()}

    def remove(self, name: str, entries: Mapping[str, str]) -> None:
        key = PREFIX + name

        def apply(pipe: Any) -> None:
            marks = pipe.hmget(key, list(entries))
            same = [
                entry for entry, mark in zip(entries, marks, strict=True) if mark == entries[entry].encode()
            ]
            pipe.multi()
            if same:
                pipe.hdel(key, *same)

        self._asked_twice(lambda: self._client.transaction(apply, key))

    def names(self, beginning: str) -> list[str]:
        found = self._asked_twice(lambda: list(self._client.scan_iter(match=f"{PREFIX}{beginning}*")))
        return [key.decode().removeprefix(PREFIX) for key in found]

    def _asked_twice(self, ask: Callable[[], Any]) -> Any:
        """Ask Redis twice: after it was restarted the first use of a connection fails."""
        try:
            try:
                return ask()
            except RedisConnectionError:
                return ask()
        except RedisError as error:
            # Within a transaction the library puts the whole command before the reason.
            reason = str(error).rpartition(" caused error: ")[2]
            kind = NoRoom if reason.startswith(REDIS_IS_FULL) else QueueUnavailable
            raise kind(f"the queue takes no tasks: {reason}") from error

    def process(self) -> str:
        return f"{self._owner} {os.getpid()}"

    def has_ended(self, process: str, *, at_start: bool = False) -> bool:
        """Only of processes of this worker: its name is unique among the workers of a broker, and they are here."""
        owner, _, pid = process.rpartition(" ")
        return owner == self._owner and (at_start or not Path("/proc", pid).exists())


class HostStore(MemoryStore):
    """Records in a file of this host, for brokers that keep none. Who queues a task on another host knows none of them.

    A process holds a lock file for as long as it lives, by which the others see whether it does. It is made, locked,
    looked at and removed by who holds the lock of the folder: it is never removed before its process has locked it.
    """

    knows_queue = False

    def __init__(self, folder: Path) -> None:
        super().__init__(clock=time.time)
        self._folder = folder
        self._process: tuple[int, str] | None = None

    def update(self, name: str, change: Callable[[Record | None], Step[Answer]]) -> Answer:
        with self._records_of_host():
            return super().update(name, change)

    def names(self, beginning: str) -> list[str]:
        with self._records_of_host():
            return super().names(beginning)

    def process(self) -> str:
        if self._process is None or self._process[0] != os.getpid():
            with self._guarded():
                for path in self._folder.glob("*.lock"):
                    if path.name != GUARD:
                        # Removes it.
                        self.has_ended(path.stem)
                name = uuid.uuid4().hex
                fcntl.flock(_opened(self._folder / f"{name}.lock"), fcntl.LOCK_EX)
                self._process = (os.getpid(), name)
        return self._process[1]

    def has_ended(self, process: str, *, at_start: bool = False) -> bool:
        path = self._folder / f"{process}.lock"
        if not path.exists():
            return True
        descriptor = _opened(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        path.unlink(missing_ok=True)
        return True

    @contextmanager
    def _records_of_host(self) -> Iterator[None]:
        """Read the records, and write those that have not ended where the body changed any. What none of us has written
        counts as no record. Raises NoRoom.
        """
        path = self._folder / "records.json"
        with self._guarded():
            found = _parsed(path.read_bytes()) if path.exists() else None
            self._records = {
                name: (kept[0], kept[1])
                for name, kept in (found or {}).items()
                if isinstance(kept, list) and [type(each) for each in kept] == [dict, float]
            }
            before = dict(self._records)
            yield
            if self._records != before:
                now_s = time.time()
                living = {name: kept for name, kept in self._records.items() if kept[1] > now_s}
                path.with_suffix(".new").write_text(json.dumps(living))
                path.with_suffix(".new").replace(path)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Hold the lock of the folder. Raises NoRoom."""
        try:
            with files.acting_as_owner(self._folder):
                files.make_folder(self._folder)
                descriptor = _opened(self._folder / GUARD)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                    yield
                finally:
                    os.close(descriptor)
        except OSError as error:
            raise NoRoom(f"cannot write into {self._folder}: {error.strerror}") from error


class ProcessStore(MemoryStore):
    """Records in the memory of this process, which has its queue there as well; but what is at work stands in a file of
    this host: another service of it may be at work on the same.
    """

    def __init__(self, host: HostStore) -> None:
        super().__init__()
        self._host = host

    def update(self, name: str, change: Callable[[Record | None], Step[Answer]]) -> Answer:
        if name.startswith("work:"):
            return self._host.update(name, change)
        return super().update(name, change)

    def names(self, beginning: str) -> list[str]:
        return [*super().names(beginning), *self._host.names(beginning)]

    def process(self) -> str:
        return self._host.process()

    def has_ended(self, process: str, *, at_start: bool = False) -> bool:
        return self._host.has_ended(process)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_written(step: Step[Any], before: Record | None) -> bool:
    return step.record is not None and (step.lives_s is not None or step.record != before)


def _parsed(text: bytes | None) -> Record | None:
    """Return a record; None as well for what none of us has written."""
    try:
        found = read_json(text) if text is not None else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
