# SPDX-License-Identifier: MIT
"""Which features a server has, and which it lacks because it is older, as its answers show.

A gateway that loses an address for a moment answers like a server that never had it (404). What was there once
is therefore never lacking, and what seems to be lacking is asked for again after a while.
"""

from __future__ import annotations

import threading
import time

from agent.core.errors import WaldurError

FORGOTTEN_AFTER_S = 3600.0


class Features:
    """The features of one server by name. Safe for use by several threads."""

    def __init__(self) -> None:
        self._there: set[str] = set()
        self._missing: dict[str, float] = {}
        self._lock = threading.Lock()

    def lacks(self, feature: str) -> bool:
        """Return whether the server was seen to lack it, not too long ago."""
        since_s = self._missing.get(feature)
        return since_s is not None and time.monotonic() - since_s < FORGOTTEN_AFTER_S

    def has(self, feature: str) -> bool:
        """Return whether the server was seen to have it."""
        return feature in self._there

    def forget(self, feature: str) -> None:
        """Ask for what seemed to be lacking with the next use."""
        with self._lock:
            self._missing.pop(feature, None)

    def note_there(self, feature: str) -> None:
        with self._lock:
            self._there.add(feature)

    def note_missing(self, feature: str, error: WaldurError) -> bool:
        """Note that the server lacks a feature; return whether that is new. Raises the error where it had the
        feature before.
        """
        with self._lock:
            if feature in self._there:
                raise error
            is_news = feature not in self._missing
            self._missing[feature] = time.monotonic()
            return is_news
