# SPDX-License-Identifier: MIT
"""One connection to a broker, kept for ever: opened, watched, and opened again after a wait that grows, with jitter.

A link has a thread of its own. What comes over it goes into the inbox, with a way to acknowledge it; the
acknowledgement of a connection that is gone does nothing, and the broker delivers the message again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.bridge.inbox import Inbox
from agent.bridge.model import Gap, Login, Source
from agent.core.errors import SiteAgentError

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 15.0
# The first failures of a row are warnings: a broker that is restarted needs nobody.
WARNINGS_FIRST = 3
# A connection that stood this long was a good one: the next wait begins with the shortest again.
GOOD_AFTER_S = 30.0


OnLost = Callable[[Iterable[Source]], None]


class LinkFailed(SiteAgentError):
    """The connection could not be made, or ended."""

    retryable = True


class LinkRefused(LinkFailed):
    """The broker answers, and refuses the login or its virtual host: perhaps Waldur has to make it anew."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits `base_s`, doubled with each failure up to `cap_s`, and up to a quarter longer."""

    base_s: float = 1.0
    cap_s: float = 120.0
    jitter: float = 0.25

    def wait_s(self, failures: int, random_unit: float) -> float:
        return float(
            min(self.cap_s, self.base_s * 2.0 ** min(failures, 30)) * (1 + self.jitter * random_unit)
        )


RECONNECT = Backoff()


class Link:
    """The base of both wires. `on_lost` is called with sources that the broker does not have (any more), `on_refused`
    with all of a login that it refuses.
    """

    # After a connection was away this long, messages may have been thrown away meanwhile.
    gap_after_s: float = 300.0

    def __init__(self, login: Login, inbox: Inbox, *, on_lost: OnLost, on_refused: OnLost) -> None:
        self.login = login
        self._inbox = inbox
        self._on_lost = on_lost
        self._on_refused = on_refused
        # Of all links: they share what may come unacknowledged.
        self.sources_in_all = 1
        self._lock = threading.Lock()
        self._wanted: frozenset[Source] = frozenset()
        self._heard: dict[Source, float] = {}
        self._subscribed: frozenset[Source] = frozenset()
        self._failures = 0
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"link-{login.user[:8]}", daemon=True)

    @property
    def subscribed(self) -> frozenset[Source]:
        """What is listened to now; empty while there is no connection."""
        return self._subscribed

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_over(self) -> bool:
        """We end the connection: at the end, and to leave a source (what was not acknowledged comes again)."""
        return self._stopping.is_set() or not self._wanted or not self._subscribed <= self._wanted

    def want(self, sources: Iterable[Source]) -> None:
        """Listen to exactly these. A connection that stands, or is being made, takes up new ones by itself."""
        wanted = frozenset(sources)
        with self._lock:
            if wanted == self._wanted:
                return
            self._wanted = wanted
            self._failures = 0
        self._wake.set()
        self.look_again()

    def start(self) -> None:
        self._thread.start()

    def stop_receiving(self) -> None:
        """Begin to stop: nothing new comes; what came can still be acknowledged."""
        self._stopping.set()
        self._wake.set()

    def close(self) -> None:
        """End the connection, after the last acknowledgement. Waits for nothing."""
        self.stop_receiving()
        self.hang_up()

    def join(self, timeout_s: float) -> None:
        """Wait until a connection that was closed has ended."""
        if self._thread.is_alive():
            self._thread.join(max(0.0, timeout_s))

    def session(self) -> None:
        """Connect, listen to what is wanted, and return when it `is_over`. Raises LinkFailed."""
        raise NotImplementedError

    def look_again(self) -> None:
        """What is wanted has changed. Safe to call from any thread, at any time."""
        raise NotImplementedError

    def hang_up(self) -> None:
        """Make `session` return. Safe to call from any thread, at any time."""
        raise NotImplementedError

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def _note_subscribed(self, sources: Iterable[Source]) -> None:
        """These are listened to from now on, too."""
        found = frozenset(sources)
        now_s = time.monotonic()
        for source in found:
            away_s = now_s - self._heard[source] if source in self._heard else None
            if away_s is None:
                self._inbox.put_gap(Gap(source.offering_uuid, "nobody listened before"))
            elif away_s > self.gap_after_s:
                self._inbox.put_gap(Gap(source.offering_uuid, f"nobody listened for {away_s:.0f} s"))
            self._heard[source] = now_s
        self._subscribed |= found

    def _forget(self, lost: Iterable[Source]) -> None:
        """The broker does not have these: Waldur makes them again, and what was in them is gone."""
        gone = frozenset(lost)
        for source in gone:
            self._heard.pop(source, None)
        self._on_lost(gone)
        with self._lock:
            self._subscribed -= gone
            self._wanted -= gone

    def _run(self) -> None:
        while not self.is_stopping:
            self._wake.clear()
            if not self._wanted:
                self._wake.wait()
                continue
            began_s = time.monotonic()
            problem = self._attempt()
            self._note_unsubscribed()
            if time.monotonic() - began_s > GOOD_AFTER_S:
                self._failures = 0
            if problem is None or self.is_stopping:
                continue
            wait_s = RECONNECT.wait_s(self._failures, random.random())  # noqa: S311  (jitter, not a secret)
            self._failures += 1
            level = logging.WARNING if self._failures <= WARNINGS_FIRST else logging.ERROR
            log.log(level, "%s: %s; again in %.0f s", self.login, problem, wait_s)
            self._wake.wait(wait_s)

    def _attempt(self) -> LinkFailed | None:
        """One connection from its beginning to its end; what ended it, None where we did."""
        try:
            self.session()
        except LinkRefused as error:
            if not self.is_stopping:
                self._on_refused(self._wanted)
            return error
        except LinkFailed as error:
            return error
        except Exception:  # as in the message loop: a link that has no thread would never come back
            log.exception("a fault of the bridge itself, with %s", self.login)
            return LinkFailed("a fault of the bridge itself")
        return None

    def _note_unsubscribed(self) -> None:
        now_s = time.monotonic()
        for source in self._subscribed:
            self._heard[source] = now_s
        self._subscribed = frozenset()
