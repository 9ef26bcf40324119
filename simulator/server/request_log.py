# SPDX-License-Identifier: MIT
"""Log of every request the server got, so that tests can assert how many a pass costs."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RequestEntry:
    """One request and its answer."""

    method: str
    # The route's pattern, such as `marketplace-orders/{uuid}/`.
    endpoint: str
    # What was sent.
    path: str
    status: int
    username: str | None
    user_agent: str
    body: Any
    duration_ms: float


class RequestLog:
    def __init__(self, *, capacity: int = 100_000) -> None:
        self._lock = threading.Lock()
        self._capacity = capacity
        self._entries: list[RequestEntry] = []

    def add(self, entry: RequestEntry) -> None:
        with self._lock:
            self._entries.append(entry)
            del self._entries[: -self._capacity]

    def entries(self, pattern: str = "*") -> list[RequestEntry]:
        """Return the entries whose `METHOD endpoint` matches a shell pattern such as `POST marketplace-orders/*`."""
        # An endpoint's braces mean nothing to fnmatch; its brackets would, but endpoints have none.
        with self._lock:
            return [e for e in self._entries if fnmatchcase(f"{e.method} {e.endpoint}", pattern)]

    def count(self, pattern: str = "*") -> int:
        return len(self.entries(pattern))

    def counts(self) -> dict[str, int]:
        """Return how many requests each `METHOD endpoint` had."""
        return dict(Counter(f"{e.method} {e.endpoint}" for e in self.entries()))

    def reset(self) -> None:
        with self._lock:
            self._entries.clear()
