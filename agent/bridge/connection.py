# SPDX-License-Identifier: MIT
"""One connection to a broker: opened, watched, and opened again after a back-off with jitter.

A connection has a thread of its own. Messages go into the inbox, with a way to acknowledge them. To acknowledge a
message of a connection that has ended does nothing: the broker delivers it again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from agent.bridge.inbox import Inbox
from agent.bridge.model import Login, Source
from agent.bridge.subscriptions import Subscriptions
from agent.core.backoff import Backoff
from agent.core.errors import SiteAgentError

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 15.0
# The first failures of a row are warnings: a broker that is restarted comes back by itself.
WARNINGS_FIRST = 3
# After a connection that lasted this long, the next wait begins with the shortest again.
GOOD_AFTER_S = 30.0
RECONNECT = Backoff(base_s=1.0, cap_s=120.0, jitter=0.25)

SourcesCallback = Callable[[Iterable[Source]], None]


class ConnectionFailed(SiteAgentError):
    """The connection could not be made, or ended."""

    retryable = True


class LoginRefused(ConnectionFailed):
    """The broker answers, and refuses the login or its virtual host: perhaps Waldur has to make it anew."""


class BrokerConnection:
    """The base of the STOMP and the MQTT connection. `on_lost` is called with sources that the broker does not have
    (any more), `on_refused` with all sources of a login that it refuses.
    """

    # When a connection was away longer than this, the broker may have thrown messages away.
    gap_after_s: float = 300.0

    def __init__(
        self, login: Login, inbox: Inbox, *, on_lost: SourcesCallback, on_refused: SourcesCallback
    ) -> None:
        self.login = login
        self.subscriptions = Subscriptions(inbox, self.gap_after_s)
        # Of all connections together: they share the number of messages that may be unacknowledged.
        self.total_sources = 1
        self._inbox = inbox
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._failures = 0
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"broker-{login.user[:8]}", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the connection's thread runs, connected or not."""
        return self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def should_end(self) -> bool:
        """Whether we end the session: because we stop, or to leave a source."""
        return self.is_stopping or self.subscriptions.must_reconnect

    def want(self, sources: Iterable[Source]) -> None:
        """Listen to exactly these. A session that is open, or being opened, takes up new ones by itself."""
        if self.subscriptions.want(sources):
            self._failures = 0
            self._wake.set()
            self.update_subscriptions()

    def start(self) -> None:
        self._thread.start()

    def stop_receiving(self) -> None:
        """Take no more messages; those that came can still be acknowledged."""
        self._stopping.set()
        self._wake.set()

    def close(self) -> None:
        """End the connection, after the last acknowledgement. Waits for nothing."""
        self.stop_receiving()
        self.disconnect()

    def join(self, timeout_s: float) -> None:
        """Wait until a connection that was closed has ended."""
        if self._thread.is_alive():
            self._thread.join(max(0.0, timeout_s))

    def session(self) -> None:
        """Connect, listen to what is wanted, and return when it `should_end`. Raises ConnectionFailed."""
        raise NotImplementedError

    def update_subscriptions(self) -> None:
        """Take up changes of the wanted sources. Safe to call from any thread, at any time."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Make `session` return. Safe to call from any thread, at any time."""
        raise NotImplementedError

    def _report_lost(self, sources: Iterable[Source]) -> None:
        """Forget sources that the broker does not have, and have Waldur make them again."""
        lost = frozenset(sources)
        self._on_lost(lost)
        self.subscriptions.forget(lost)

    def _run(self) -> None:
        """Open one session after the other until the connection is closed."""
        while not self.is_stopping:
            self._wake.clear()
            if not self.subscriptions.wanted:
                self._wake.wait()
                continue
            began_s = time.monotonic()
            problem: ConnectionFailed | None = None
            try:
                self.session()
            except LoginRefused as error:
                problem = error
                if not self.is_stopping:
                    self._on_refused(self.subscriptions.wanted)
            except ConnectionFailed as error:
                problem = error
            except Exception:  # as in the message loop: a connection that has no thread would never come back
                log.exception("internal error in the connection to %s", self.login)
                problem = ConnectionFailed("internal error, see above")
            self.subscriptions.note_disconnected()
            if time.monotonic() - began_s > GOOD_AFTER_S:
                self._failures = 0
            if problem is None or self.is_stopping:
                continue
            wait_s = RECONNECT.wait_s(self._failures)
            self._failures += 1
            level = logging.WARNING if self._failures <= WARNINGS_FIRST else logging.ERROR
            log.log(level, "%s: %s; again in %.0f s", self.login, problem, wait_s)
            self._wake.wait(wait_s)
