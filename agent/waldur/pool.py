# SPDX-License-Identifier: MIT
"""Several requests at once, over a bounded pool: one failure does not keep the others from being sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from itertools import islice
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from agent.core.errors import WaldurError
from agent.http.connections import POOL_SIZE

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")

# Set once nobody waits any more for what the calls of this context read.
_given_up: ContextVar[threading.Event | None] = ContextVar("given_up", default=None)


class Beside(Protocol):
    """Starts a call in a thread of its own, and returns what will have its answer."""

    def __call__(self, ask: Callable[[], Answer]) -> Future[Answer]: ...


def each(keys: Iterable[Key], ask: Callable[[Key], Answer]) -> Mapping[Key, Answer | WaldurError]:
    """Call `ask` for every key, several at a time; what failed is in the result as the error itself."""

    def attempt(key: Key) -> Answer | WaldurError:
        try:
            return ask(key)
        except WaldurError as error:
            return error

    # Threads begin with an empty context; their lines in the log are about the same as ours.
    distinct = list(dict.fromkeys(keys))
    if len(distinct) < 2:
        return {key: attempt(key) for key in distinct}
    with ThreadPoolExecutor(max_workers=POOL_SIZE) as pool:
        contexts = [copy_context() for _ in distinct]
        answers = pool.map(lambda context, key: context.run(attempt, key), contexts, distinct)
        return dict(zip(distinct, answers, strict=True))


class Ahead(Generic[Key, Answer]):
    """Answers that are asked for before they are needed, `at_once` at a time; taken one by one, in the caller's order.

    Closed before all are taken, it waits for none.
    """

    def __init__(self, ask: Callable[[Key], Answer], at_once: int) -> None:
        self._ask = ask
        self._at_once = at_once
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: dict[Key, Future[Answer]] = {}

    def start(self, keys: Iterable[Key]) -> None:
        """Ask for the next few of these. A single one waits until it is taken."""
        wanted = list(islice(keys, self._at_once + 1))
        if self._under_way and wanted and wanted[0] not in self._under_way:
            self._at_once = 0  # foreseen wrongly: from now on one at a time
        if self._at_once and len(wanted) > 1:
            self._pool = self._pool or ThreadPoolExecutor(max_workers=self._at_once)
            for key in wanted:
                if key not in self._under_way:
                    self._under_way[key] = self._pool.submit(copy_context().run, self._ask, key)

    def take(self, key: Key) -> Answer:
        """Return the answer to a key. Raises what asking for it raised."""
        started = self._under_way.pop(key, None)
        return self._ask(key) if started is None else started.result()

    def __enter__(self) -> Ahead[Key, Answer]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def beside(at_once: int) -> Iterator[Beside]:
    """Have calls run beside those of the body. Where the body fails, those that still run are not waited for: their
    listings end with the next page.
    """
    pool, given_up = ThreadPoolExecutor(max_workers=at_once), threading.Event()

    def start(ask: Callable[[], Answer]) -> Future[Answer]:
        context = copy_context()
        context.run(_given_up.set, given_up)
        return pool.submit(context.run, ask)

    try:
        yield start
    except BaseException:
        given_up.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def is_given_up() -> bool:
    """Return whether nobody waits any more for what is read here."""
    event = _given_up.get()
    return event is not None and event.is_set()
