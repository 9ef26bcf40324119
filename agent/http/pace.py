# SPDX-License-Identifier: MIT
"""The pace that a server asks for: one refusal (429, or 503 with Retry-After) slows all requests of a client down, not
only the one that was refused. Else the others would be refused until their attempts are used up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# After a refusal requests go one after the other for so long.
ALONE_S = 60.0
# Refused together, they are repeated one after the other, this far apart.
APART_S = 0.5


class Pace:
    """When requests of one client may be sent. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._not_before_s = 0.0
        self._alone_until_s = 0.0

    def refused(self, wait_s: float) -> float:
        """Note that the server wants no request for `wait_s` seconds; return how much longer than that this one is to
        wait, so that those refused together are not repeated together.
        """
        with self._lock:
            now_s = time.monotonic()
            again_s = max(now_s + wait_s, self._not_before_s)
            self._not_before_s = again_s + APART_S
            self._alone_until_s = again_s + ALONE_S
            return max(0.0, again_s - now_s - wait_s)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until a request may begin; after a refusal also until the one before it has ended."""
        if time.monotonic() >= self._alone_until_s:
            yield
            return
        with self._turn:
            # Another one, sent before, may be refused during the wait.
            while (wait_s := self._not_before_s - time.monotonic()) > 0:
                time.sleep(wait_s)
            yield
