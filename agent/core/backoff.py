# SPDX-License-Identifier: MIT
"""How long to wait before the next attempt, and how often: the one back-off of all that tries again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off."""

    # The first wait, doubled with each failure.
    base_s: float = 1.0
    # The longest wait.
    cap_s: float = 120.0
    # The share by which it is changed at random.
    jitter: float = 0.25

    def wait_s(self, failures: int, spread: float | None = None) -> float:
        """Return the seconds to wait after `failures` earlier ones.

        `spread`: which share of the jitter, -1 to 1; without it one is drawn that makes the wait longer only.
        """
        if spread is None:
            spread = random.random()  # noqa: S311  (jitter, not a secret)
        wait_s = min(self.cap_s, self.base_s * 2.0 ** min(failures, 30))
        return float(wait_s * (1 + self.jitter * spread))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often something is tried, and the waits between."""

    attempts: int
    backoff: Backoff

    def countdown_s(self, retries: int, spread: float) -> float:
        """Return the wait before the next attempt, longer or shorter by a random `spread` between -1 and 1, and never
        longer than the back-off's `cap_s`.
        """
        return min(self.backoff.cap_s, self.backoff.wait_s(retries, spread))
