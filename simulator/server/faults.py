# SPDX-License-Identifier: MIT
"""Faults on demand: slow answers, error pages, broken connections, cut-off bodies, throttling.

A fault names the requests it strikes by method and path; the handlers ask once per request.
"""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import dataclass
from enum import Enum

GATEWAY_PAGE = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


class FaultKind(Enum):
    """What the client meets; DELAY only waits, the others also replace or break the answer."""

    DELAY = "delay"
    ANSWER = "answer"
    RESET = "reset"
    TRUNCATE = "truncate"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that strikes requests."""

    kind: FaultKind = FaultKind.ANSWER
    # A regular expression, like the path.
    method: str = ".*"
    # Searched in what follows the host.
    path: str = ".*"
    status: int = 503
    body: str = GATEWAY_PAGE
    content_type: str = "text/html"
    retry_after_s: int | None = None
    latency_ms: int = 0
    # Whether an ANSWER or RESET strikes after the request took effect (a lost answer) or instead of it (a lost
    # request); a DELAY or TRUNCATE never stops it.
    carried_out: bool = False
    # None: for ever.
    times: int | None = 1
    # So many requests go by before.
    skip: int = 0
    probability: float = 1.0
    seed: int = 0

    @property
    def loses_request(self) -> bool:
        return self.kind in (FaultKind.ANSWER, FaultKind.RESET) and not self.carried_out


def throttled(*, retry_after_s: int, method: str = ".*", path: str = ".*", times: int | None = 1) -> Fault:
    return Fault(
        status=429,
        method=method,
        path=path,
        body='{"detail": "Request was throttled."}',
        content_type="application/json",
        retry_after_s=retry_after_s,
        times=times,
    )


@dataclass
class _Armed:
    fault: Fault
    seen: int = 0
    struck: int = 0

    def strikes(self, method: str, path: str) -> bool:
        fault = self.fault
        if fault.times is not None and self.struck >= fault.times:
            return False
        if not re.fullmatch(fault.method, method) or not re.search(fault.path, path):
            return False
        self.seen += 1
        # A number from 0 to 1 that is the same for the same seed and request count.
        roll = hashlib.sha256(f"{fault.seed}/{self.seen}".encode()).digest()
        if self.seen <= fault.skip or int.from_bytes(roll[:4]) / 2**32 >= fault.probability:
            return False
        self.struck += 1
        return True


class Faults:
    """The armed faults in the order they were added; the first that strikes wins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[_Armed] = []

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._armed.append(_Armed(fault))

    def clear(self) -> None:
        with self._lock:
            self._armed.clear()

    def strike(self, method: str, path: str) -> Fault | None:
        with self._lock:
            return next((a.fault for a in self._armed if a.strikes(method, path)), None)

    def armed(self) -> list[tuple[Fault, int]]:
        """Return every fault with the number of times it has struck."""
        with self._lock:
            return [(a.fault, a.struck) for a in self._armed]
