# SPDX-License-Identifier: MIT
"""The circuit breaker: decide from errors one after another whether each was its own, or what all need is away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from agent.core.errors import SiteAgentError

Error = TypeVar("Error", bound=SiteAgentError)


class CircuitBreaker(Generic[Error]):
    """`error` is set once nothing more should be tried: to one that `opens` the circuit by itself, or to the last of
    so many failures in a row. Those that do not `count` break the row, as success does. Thread-safe.
    """

    def __init__(
        self,
        failures_in_a_row: int,
        *,
        opens: Callable[[Error], bool],
        counts: Callable[[Error], bool] = lambda _: True,
    ) -> None:
        self.error: Error | None = None
        self._at_most = failures_in_a_row
        self._opens, self._counts = opens, counts
        self._in_a_row = 0
        self._lock = threading.Lock()

    def record(self, error: Error | None) -> None:
        """Record how an attempt ended; None for success."""
        with self._lock:
            self._in_a_row = self._in_a_row + 1 if error is not None and self._counts(error) else 0
            if error is None or self.error is not None:
                return
            if self._in_a_row >= self._at_most or self._opens(error):
                self.error = error
