# SPDX-License-Identifier: MIT
"""Several requests at once, over a bounded pool: one failure does not keep the others from being sent."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from agent.core.errors import WaldurError
from agent.http.connections import POOL_SIZE

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")

# Set once no caller waits any more for what the calls of this context read.
_given_up: ContextVar[threading.Event | None] = ContextVar("given_up", default=None)


class StartCall(Protocol):
    """Starts a call in a thread of its own, and returns what will have its answer."""

    def __call__(self, ask: Callable[[], Answer]) -> Future[Answer]: ...


class Threads:
    """Room for `at_once` requests, in threads that are made when they are first needed, and anew in a process that was
    forked since.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._made: tuple[int, ThreadPoolExecutor, threading.Semaphore] | None = None
        self._lock = threading.Lock()

    def start(self, ask: Callable[[], Answer]) -> Future[Answer]:
        pool, _ = self._parts()
        return pool.submit(copy_context().run, partial(self.run, ask))

    def run(self, ask: Callable[[], Answer]) -> Answer:
        """Ask in the caller's thread, once there is room."""
        _, room = self._parts()
        with room:
            return ask()

    def close(self) -> None:
        """Let the threads end, without waiting for what they still do."""
        if self._made is not None:
            self._made[1].shutdown(wait=False, cancel_futures=True)
            self._made = None

    def _parts(self) -> tuple[ThreadPoolExecutor, threading.Semaphore]:
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                pool = ThreadPoolExecutor(max_workers=self.at_once)
                self._made = os.getpid(), pool, threading.Semaphore(self.at_once)
            return self._made[1:]


# Of all clients of this process, for `each`: with the caller's own as many as there are connections to a server.
_threads = Threads(POOL_SIZE - 1)


def each(keys: Iterable[Key], ask: Callable[[Key], Answer]) -> Mapping[Key, Answer | WaldurError]:
    """Call `ask` for every key, several at a time; what failed is in the result as the error itself.

    The threads are kept: making one costs as much as half a request. The caller's own does what no other has begun, so
    that no `each` waits for another one.
    """

    def attempt(key: Key) -> Answer | WaldurError:
        try:
            return ask(key)
        except WaldurError as error:
            return error

    distinct = list(dict.fromkeys(keys))
    calls: dict[Key, Future[Answer | WaldurError]] = {}
    answers: dict[Key, Answer | WaldurError] = {}
    try:
        for key in distinct[1:]:
            calls[key] = _threads.start(partial(attempt, key))
        for key in distinct:
            call = calls.get(key)
            answers[key] = attempt(key) if call is None or call.cancel() else call.result()
    except BaseException:
        # Nothing is sent any more once the caller goes on, whatever interrupts it.
        wait([call for call in calls.values() if not call.cancel()])
        raise
    return answers


class Ahead(Generic[Key, Answer]):
    """Answers that are asked for a few at a time before they are needed; taken one by one, in the caller's order."""

    def __init__(self, threads: Threads, ask: Callable[[Key], Answer]) -> None:
        self._threads = threads
        self._ask = ask
        self._at_once = threads.at_once
        self._under_way: dict[Key, Future[Answer]] = {}

    def start(self, keys: Iterable[Key]) -> None:
        """Ask for the next few of these. A single one is asked for when it is taken, in the caller's thread: the end of
        the process waits for all others.
        """
        wanted = list(islice(keys, self._at_once + 1))
        if self._under_way and wanted and wanted[0] not in self._under_way:
            # The caller takes others than those that were started: from now on one at a time.
            self._at_once, wanted = 0, wanted[:1]
        if len(wanted) == 1 and not self._under_way:
            return
        for key in wanted:
            if key not in self._under_way:
                self._under_way[key] = self._threads.start(partial(self._ask, key))

    def take(self, key: Key) -> Answer:
        """Return the answer to a key that was wanted. Raises what asking for it raises."""
        started = self._under_way.pop(key, None)
        return started.result() if started else self._threads.run(partial(self._ask, key))

    def __enter__(self) -> Ahead[Key, Answer]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave off what has not begun; what has is not waited for."""
        for started in self._under_way.values():
            started.cancel()


# Threads that wait for the next body of `calls_in_threads`, by how many calls they run at once.
_idle: defaultdict[int, list[Threads]] = defaultdict(list)


@contextmanager
def calls_in_threads(at_once: int) -> Iterator[StartCall]:
    """Run calls at the same time as those of the body. Where the body fails, those that still run are not waited for:
    their listings end with the next page. Else the threads are kept for the next body.
    """
    threads, given_up = Threads(at_once), threading.Event()
    with suppress(IndexError):
        threads = _idle[at_once].pop()
    calls: list[Future[Any]] = []

    def start(ask: Callable[[], Answer]) -> Future[Answer]:
        context = copy_context()
        context.run(_given_up.set, given_up)
        call = context.run(threads.start, ask)
        calls.append(call)
        return call

    try:
        yield start
        wait(calls)
    except BaseException:
        given_up.set()
        threads.close()
        raise
    _idle[at_once].append(threads)


def is_abandoned() -> bool:
    """Return whether no caller waits any more for what is read here."""
    event = _given_up.get()
    return event is not None and event.is_set()
