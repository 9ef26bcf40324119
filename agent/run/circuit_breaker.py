# SPDX-License-Identifier: MIT
"""Is Waldur away, or is it one object that it trips over? Many requests at once ask this of their own answers."""

from __future__ import annotations

import threading

from agent.core.errors import WaldurAnswerError, WaldurError

IN_A_ROW = 8


class Outage:
    """`error` once nothing more should be sent: no answer came, the token is refused, or one failure followed another.

    A single 500 is a matter of what was sent (Waldur of 2024 answers so for a resource without a plan). Safe for use
    by several threads.
    """

    def __init__(self) -> None:
        self.error: WaldurError | None = None
        self._in_a_row = 0
        self._lock = threading.Lock()

    def note(self, error: WaldurError | None) -> None:
        """How a request ended."""
        with self._lock:
            may_pass = error is not None and error.retryable
            self._in_a_row = self._in_a_row + 1 if may_pass else 0
            if error is None or self.error is not None:
                return
            is_away = may_pass and error.status is None and not isinstance(error, WaldurAnswerError)
            if is_away or error.denied or self._in_a_row >= IN_A_ROW:
                self.error = error
