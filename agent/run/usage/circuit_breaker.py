# SPDX-License-Identifier: MIT
"""Decide from the answers to many requests at once whether Waldur is away, or fails for one object only."""

from __future__ import annotations

import threading

from agent.core.errors import WaldurAnswerError, WaldurError

FAILURES_IN_A_ROW = 8


class CircuitBreaker:
    """`error` is set once nothing more should be sent: no answer came, the token is refused, or one failure followed
    another.

    A single 500 is about what was sent (Waldur of 2024 answers so for a resource without a plan). Thread-safe.
    """

    def __init__(self) -> None:
        self.error: WaldurError | None = None
        self._in_a_row = 0
        self._lock = threading.Lock()

    def record(self, error: WaldurError | None) -> None:
        """Record how a request ended; None for success."""
        with self._lock:
            may_pass = error is not None and error.retryable
            self._in_a_row = self._in_a_row + 1 if may_pass else 0
            if error is None or self.error is not None:
                return
            is_away = may_pass and error.status is None and not isinstance(error, WaldurAnswerError)
            if is_away or error.denied or self._in_a_row >= FAILURES_IN_A_ROW:
                self.error = error
