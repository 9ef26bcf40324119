# SPDX-License-Identifier: MIT
"""`log_shipping`: the agent's log in Waldur, for the offering that each line is about. Workers and the bridge ship.

A line that is logged while a task of an offering runs is about that offering. Other lines are about all offerings, and
go to the first one, where all of them are of one Waldur; no other Waldur gets lines about an offering. Nothing here
stops work: what cannot be shipped is dropped, the oldest lines first. Secrets are removed from the lines.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from agent import __version__
from agent.config.model import LogShipping, Offering, Settings
from agent.core.errors import SiteAgentError, WaldurError, WaldurLacks
from agent.http.client import Timeouts
from agent.observability.logs import SHIPPER, context
from agent.observability.sentry import redacted, secrets_of
from agent.waldur import agent_logs, identities
from agent.waldur.agent_logs import LINES_AT_ONCE, LogLine
from agent.waldur.client import WaldurClient
from agent.waldur.identities import Program

log = logging.getLogger(__name__)

MEGABYTE = 1 << 20
USER_AGENT = f"waldur-site-agent-log_shipping/{__version__}"
TIMEOUTS = Timeouts(connect_s=5, read_s=30)
# Of lines about shipping itself: each would make a new one, without end.
NEVER_SHIPPED = (__name__, "agent.waldur", "urllib3", "requests")

Send = Callable[[str, Sequence[LogLine]], None]


class LogShipper(logging.Handler):
    """Keeps lines and ships them by a thread of its own, in each process that logs: Celery's are forked."""

    def __init__(
        self,
        shipping: LogShipping,
        send: Send,
        *,
        known: frozenset[str],
        usual: str,
        secrets: Sequence[str] = (),
    ) -> None:
        """`known`: the offerings. `usual`: that of lines that are about no single one; empty: they are not shipped."""
        super().__init__(shipping.log_level)
        self.set_name(SHIPPER)
        self._interval_s = float(shipping.interval_seconds)
        self._most_bytes = shipping.buffer_mb * MEGABYTE
        self._send = send
        self._known = known
        self._usual = usual
        self._secrets = secrets
        self._pid = os.getpid()
        self._lines: deque[tuple[str, LogLine]] = deque()
        self._bytes = 0
        self._dropped = 0
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line. Runs under the handler's lock, which logging makes anew in a forked process."""
        if self._pid != os.getpid():
            # The lines are shipped by the process that kept them, and its thread is not here.
            self._pid, self._thread, self._stop = os.getpid(), None, threading.Event()
            self._lines.clear()
            self._bytes = self._dropped = 0
        offering = context().get("offering", "")
        offering = offering if offering in self._known else self._usual
        if not offering or record.name.startswith(NEVER_SHIPPED):
            return
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = str(record.msg)
        if record.exc_info and record.exc_info[1] is not None:
            message = f"{message}: {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        line = LogLine(record.created, record.levelname, redacted(message, self._secrets), record.name)
        self._lines.append((offering, line))
        self._bytes += len(line.message)
        while self._bytes > self._most_bytes and len(self._lines) > 1:
            self._bytes -= len(self._lines.popleft()[1].message)
            self._dropped += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log-shipper", daemon=True)
            self._thread.start()

    def ship(self) -> None:
        """Ship what was kept. What Waldur cannot take now is kept for the next time, what it refuses is dropped."""
        self.acquire()
        try:
            lines, dropped = list(self._lines), self._dropped
            self._lines.clear()
            self._bytes = self._dropped = 0
        finally:
            self.release()
        if dropped:
            log.warning("log_shipping: %d lines were dropped, more than buffer_size_mb holds", dropped)
        by_offering: dict[str, list[LogLine]] = {}
        for offering, line in lines:
            by_offering.setdefault(offering, []).append(line)
        for offering, several in by_offering.items():
            for start in range(0, len(several), LINES_AT_ONCE):
                self._ship(offering, several[start : start + LINES_AT_ONCE])

    def close(self) -> None:
        """Ship what is left, once and without a thread."""
        thread, self._thread = self._thread, None
        self._stop.set()
        if thread is not None and self._pid == os.getpid():
            self.ship()
        super().close()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.ship()

    def _ship(self, offering: str, lines: Sequence[LogLine]) -> None:
        try:
            self._send(offering, lines)
        except WaldurLacks:
            return  # noted and logged by the client, once
        except WaldurError as error:
            if not error.retryable or self._stop.is_set():
                log.warning("log_shipping: %d lines are dropped: %s", len(lines), error)
                return
            self.acquire()
            try:
                self._lines.extendleft((offering, line) for line in reversed(lines))
                self._bytes += sum(len(line.message) for line in lines)
            finally:
                self.release()
        except SiteAgentError as error:
            log.warning("log_shipping: %d lines are dropped: %s", len(lines), error)


class _Desk:
    """Sends lines as the identity of their offering, which it makes where Waldur has none."""

    def __init__(self, settings: Settings) -> None:
        self._offerings: Mapping[str, Offering] = {offering.uuid: offering for offering in settings.offerings}
        self._program = Program(__version__, {}, settings.source, datetime.now(UTC))
        self._known: dict[str, tuple[WaldurClient, str]] = {}
        self._pid = os.getpid()

    def __call__(self, offering_uuid: str, lines: Sequence[LogLine]) -> None:
        if self._pid != os.getpid():
            self._known, self._pid = {}, os.getpid()
        offering = self._offerings[offering_uuid]
        if offering_uuid not in self._known:
            # One attempt: what Waldur does not take now is kept for the next interval.
            client = WaldurClient(
                offering.access,
                user_agent=USER_AGENT,
                offering_uuid=offering.uuid,
                attempts=1,
                timeouts=TIMEOUTS,
            )
            self._known[offering_uuid] = client, identities.register(client, self._program, update=False)
        agent_logs.ship(*self._known[offering_uuid], lines)


def set_up(settings: Settings) -> LogShipper | None:
    """Add a shipper to the root logger; None where `log_shipping` is off. Its own threads start with the first line."""
    if not settings.log_shipping.enabled or not settings.offerings:
        return None
    servers = {offering.access.url for offering in settings.offerings}
    usual = settings.offerings[0].uuid if len(servers) == 1 else ""
    known = frozenset(offering.uuid for offering in settings.offerings)
    shipper = LogShipper(
        settings.log_shipping, _Desk(settings), known=known, usual=usual, secrets=secrets_of(settings)
    )
    logging.getLogger().addHandler(shipper)
    return shipper
