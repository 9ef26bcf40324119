# SPDX-License-Identifier: MIT
"""Faults at one step of a pass: answers that go wrong, and a kill at a request or a call of the backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.waldur.client import WaldurClient
from backends.testing.memory import MemoryBackend
from simulator.server.faults import FaultKind

FAULTS = {
    "lost request": {"kind": FaultKind.RESET, "carried_out": False},
    "lost answer": {"kind": FaultKind.RESET, "carried_out": True},
    "server error": {"status": 500, "carried_out": False},
    "gateway error after it was done": {"status": 502, "carried_out": True},
    "page that is not JSON": {"status": 200, "carried_out": True, "body": "<html>login</html>"},
    "cut body": {"kind": FaultKind.TRUNCATE},
}


class Killed(BaseException):
    """Stands for SIGKILL: nothing in between may catch it."""


class MortalClient(WaldurClient):
    """Asks `step` before and after each request: a test may die there. Repeats nothing by itself."""

    step: Callable[[], None] = staticmethod(lambda: None)

    def _send(self, *args: Any, **kwargs: Any) -> Any:
        self.step()
        answer = super()._send(*args, **kwargs)
        self.step()
        return answer


def killed_at(step: int, client: MortalClient, backend: MemoryBackend, work: Callable[[], object]) -> bool:
    """Run `work` and kill it at this step, counted from one. Return whether it came that far."""
    steps = 0

    def die() -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            raise Killed

    def die_in_backend(_: str) -> bool:
        die()
        return False

    client.step, backend.outage = die, die_in_backend
    try:
        work()
        return False
    except Killed:
        return True
    finally:
        client.step, backend.outage = lambda: None, lambda _: False
