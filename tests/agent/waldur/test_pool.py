# SPDX-License-Identifier: MIT
"""Several requests at once over threads that are kept: nothing of one call is left when the caller goes on."""

from __future__ import annotations

import threading

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

    with pool.threads() as kept:
        for _ in range(5):
            answers = pool.each(range(20), ask, kept)
            assert [key for key, answer in answers.items() if isinstance(answer, WaldurError)] == [2]
    assert len(seen) <= pool.POOL_SIZE


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

    with pool.threads() as kept:
        with pytest.raises(KeyboardInterrupt):
            pool.each(range(pool.POOL_SIZE), ask, kept)
        assert (len(begun), len(ended)) == (pool.POOL_SIZE, pool.POOL_SIZE - 1)
