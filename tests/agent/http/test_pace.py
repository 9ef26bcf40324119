# SPDX-License-Identifier: MIT
"""After a refusal a client's requests are sent one after the other, not before the time that the server named."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from agent.http import pace
from agent.http.pace import Pace

WAIT_S = 600.0


def test_requests_refused_together_are_not_repeated_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    kept = Pace()
    assert [kept.refused(1.0) for _ in range(3)] == [0, pace.APART_S, 2 * pace.APART_S]


@pytest.mark.parametrize("is_refused", [False, True])
def test_only_after_a_refusal_one_waits_for_the_other(
    monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    monkeypatch.setattr(pace, "APART_S", 0.0)
    kept, inside = Pace(), threading.Event()
    if is_refused:
        kept.refused(0.0)

    def other() -> None:
        with kept.turn():
            inside.set()

    thread = threading.Thread(target=other)
    with kept.turn():
        thread.start()
        assert inside.wait(0.1 if is_refused else WAIT_S) is not is_refused
    thread.join(WAIT_S)
    assert inside.is_set()
