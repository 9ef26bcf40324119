# SPDX-License-Identifier: MIT
"""What was said last, so that a log has it once: all who log something only where it is news ask here.

It ends with its process. What is to be said once beyond that is a hint (agent/state/hints.py).
"""

from __future__ import annotations

import threading

# A large cluster has 50,000 accounts.
SUBJECTS_AT_MOST = 100_000


class Said:
    """The words that were said last of each subject; of many subjects the newest. Safe for use by several threads."""

    def __init__(self, subjects_at_most: int = SUBJECTS_AT_MOST) -> None:
        self._last: dict[str, tuple[str, ...]] = {}
        self._at_most = subjects_at_most
        self._lock = threading.Lock()

    def news(self, subject: str, *words: str) -> list[str]:
        """Return those of the words that were not said the last time, each once. These are the last words from now on;
        none: there is nothing to say any more, and what comes again is news again.
        """
        with self._lock:
            before = self._last.pop(subject, ())
            if words:
                self._last[subject] = words
            while len(self._last) > self._at_most:
                del self._last[next(iter(self._last))]
        return [each for each in dict.fromkeys(words) if each not in before]
