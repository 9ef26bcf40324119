# SPDX-License-Identifier: MIT
"""How long to wait before the next attempt. Used by tasks and by the bridge; HTTP requests use urllib3's own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off: `base_s`, doubled with each failure up to `cap_s`, changed by a share of `jitter`."""

    base_s: float = 1.0
    cap_s: float = 120.0
    jitter: float = 0.25

    def wait_s(self, failures: int, spread: float) -> float:
        """Return the seconds to wait after `failures` earlier ones.

        `spread` is the caller's random number: 0 to 1 makes the wait longer only, -1 to 1 longer or shorter.
        """
        wait_s = min(self.cap_s, self.base_s * 2.0 ** min(failures, 30))
        return float(wait_s * (1 + self.jitter * spread))
