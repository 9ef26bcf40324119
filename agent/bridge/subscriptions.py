# SPDX-License-Identifier: MIT
"""What one broker connection is to listen to, what it listens to now, and when messages may have been missed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from agent.bridge.inbox import Inbox
from agent.bridge.model import Gap, Source


class Subscriptions:
    """The wanted and the active sources of one connection. Safe to use from several threads.

    `gap_after_s`: after a source was not listened to for this long, messages may have been thrown away.
    """

    def __init__(self, inbox: Inbox, gap_after_s: float) -> None:
        self.wanted: frozenset[Source] = frozenset()
        # What is listened to now; empty while there is no connection.
        self.active: frozenset[Source] = frozenset()
        self._inbox = inbox
        self._gap_after_s = gap_after_s
        self._last_heard_s: dict[Source, float] = {}
        self._lock = threading.Lock()

    @property
    def missing(self) -> frozenset[Source]:
        return self.wanted - self.active

    @property
    def must_reconnect(self) -> bool:
        """Whether a source is to be left, which ends the connection: what was not acknowledged comes again."""
        return not self.wanted or not self.active <= self.wanted

    def want(self, sources: Iterable[Source]) -> bool:
        """Replace the wanted sources; return whether they changed."""
        wanted = frozenset(sources)
        with self._lock:
            if wanted == self.wanted:
                return False
            self.wanted = wanted
            return True

    def note_subscribed(self, sources: Iterable[Source]) -> None:
        """Add sources that are listened to from now on; put a gap into the inbox where messages may be missing."""
        found = frozenset(sources)
        now_s = time.monotonic()
        for source in found:
            away_s = now_s - self._last_heard_s[source] if source in self._last_heard_s else None
            if away_s is None:
                self._inbox.put_gap(Gap(source.offering_uuid, "this bridge did not listen before"))
            elif away_s > self._gap_after_s:
                self._inbox.put_gap(
                    Gap(source.offering_uuid, f"this bridge did not listen for {away_s:.0f} s")
                )
            self._last_heard_s[source] = now_s
        self.active |= found

    def forget(self, sources: Iterable[Source]) -> None:
        """Drop sources that the broker does not have: what was in them is gone."""
        gone = frozenset(sources)
        for source in gone:
            self._last_heard_s.pop(source, None)
        with self._lock:
            self.active -= gone
            self.wanted -= gone

    def note_disconnected(self) -> None:
        """Note that the connection has ended: nothing is listened to."""
        now_s = time.monotonic()
        for source in self.active:
            self._last_heard_s[source] = now_s
        self.active = frozenset()
