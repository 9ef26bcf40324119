# SPDX-License-Identifier: MIT
"""Several requests at once over threads that are kept: nothing of one call is left when the caller goes on."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from agent.core.errors import WaldurError
from agent.waldur import pool


def test_kept_threads_serve_one_call_after_the_other() -> None:
    seen: set[str] = set()

    def ask(number: int) -> int:
        seen.add(threading.current_thread().name)
        if number == 2:
            raise WaldurError("no", method="POST", path="x", status=500)
        return number

    for _ in range(5):
        answers = pool.each(range(20), ask)
        assert [key for key, answer in answers.items() if isinstance(answer, WaldurError)] == [2]
    assert len(seen) <= pool.POOL_SIZE


def test_threads_beside_a_body_serve_the_next_one_unless_it_fails() -> None:
    """Where a body fails, a call of it may hang for long."""
    seen: list[set[int]] = []

    def ask() -> None:
        together.wait(600)
        seen[-1].add(threading.get_ident())

    def run() -> None:
        seen.append(set())
        with pool.calls_in_threads(2) as start:
            for call in [start(ask), start(ask)]:
                call.result()

    together = threading.Barrier(2)
    run()
    run()
    assert (seen[0], len(seen[0])) == (seen[1], 2)
    begun, hold = threading.Barrier(3), threading.Event()

    def hang() -> bool:
        begun.wait(600)
        return hold.wait(600)

    with suppress(ZeroDivisionError), pool.calls_in_threads(2) as start:
        hung = [start(hang) for _ in range(2)]
        begun.wait(600)
        raise ZeroDivisionError
    run()
    hold.set()
    assert [call.result(600) for call in hung] == [True, True]


def test_a_call_that_is_interrupted_leaves_nothing_under_way() -> None:
    begun: list[int] = []
    ended: list[int] = []
    all_begun = threading.Barrier(pool.POOL_SIZE)
    go_on = threading.Event()

    def ask(number: int) -> None:
        begun.append(number)
        all_begun.wait(600)
        if number == 0:
            # The others end only after this one has failed.
            threading.Timer(0.2, go_on.set).start()
            raise KeyboardInterrupt
        go_on.wait(600)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        pool.each(range(pool.POOL_SIZE), ask)
    assert (len(begun), len(ended)) == (pool.POOL_SIZE, pool.POOL_SIZE - 1)


def test_calls_that_have_all_threads_wait_for_no_others() -> None:
    """As long as another one holds all threads, or where a call has calls of its own."""
    hold = threading.Event()
    holder = threading.Thread(target=pool.each, args=(range(pool.POOL_SIZE), lambda _: hold.wait(600)))
    holder.start()
    inner = pool.each(range(3), lambda number: list(pool.each(range(number), str).values()))
    assert inner == {0: [], 1: ["0"], 2: ["0", "1"]}
    hold.set()
    holder.join()


def test_a_call_that_fails_waits_for_none_that_had_not_begun() -> None:
    """Calls within calls would wait for each other: what was not begun leaves the queue when a thread comes to it."""
    hold, ended = threading.Event(), []

    def held(number: int) -> None:
        hold.wait(600)
        ended.append(number)

    holder = threading.Thread(target=pool.each, args=(range(pool.POOL_SIZE), held))
    holder.start()
    with pytest.raises(ZeroDivisionError):
        pool.each(range(3), lambda number: 1 // number)
    assert ended == []
    hold.set()
    holder.join()
