# SPDX-License-Identifier: MIT
"""What all pages of the console share: the person who looks, the threads that wait, headers and errors.

The process has no token for Waldur and starts no command of a cluster. What may wait (the state file, the broker,
hashes) runs in threads, so that a slow one delays no other person's page.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
import time
from asyncio import Future
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from markupsafe import Markup
from tornado.http1connection import HTTP1Connection
from tornado.iostream import IOStream
from tornado.web import Finish, HTTPError, RequestHandler

from agent.cli import pages
from agent.cli.web import passwords
from agent.cli.web.caller import Caller, caller_of
from agent.cli.web.roles import Person
from agent.config.model import Settings
from agent.core.errors import SiteAgentError, StateBusy
from agent.run.diagnosis import picture
from agent.run.diagnosis.picture import BrokerStatus
from agent.state.held_plans import PlanChanged
from agent.state.hints import Hints
from agent.state.store import NAME
from tasks.queue import inspection

log = logging.getLogger(__name__)

Result = TypeVar("Result")

SESSION_S = 8 * 3600.0
BROKER_SEEN_S = 15.0
BROKER_PATIENCE_S = 3.0
# A read of the state that waits in vain takes ten seconds: so long those behind it fail at once.
BUSY_S = 5.0
# Whoever has taken nothing of a page for so long is dropped.
SLOW_READER_S = 60.0
TRIES_KEPT = 10_000
# Of an offering or a resource, in a route.
UUID = "([0-9a-f]{32})"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass
class Tries:
    """Logins of one name from one address."""

    failed: int = 0
    waiting: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Session:
    """One login of a person."""

    person: Person
    expires_s: float
    # Of a password: whoever sets another one ends the sessions of the one before.
    hash: bytes = b""


@dataclass
class Console:
    """What the handlers share."""

    settings: Settings
    # Of the session. A browser sends one for 127.0.0.1 to each port there: consoles of several hosts, by `ssh -L`.
    cookie: str
    slow_reader_s: float = SLOW_READER_S
    broker_patience_s: float = BROKER_PATIENCE_S
    # By the digest of what is in the cookie; lost with the process.
    sessions: dict[str, Session] = field(default_factory=dict)
    # By name and address; names that are not in the file are a few.
    tries: dict[tuple[str, str], Tries] = field(default_factory=lambda: defaultdict(Tries))
    # The state file, one after the other; hashes, and the broker, which take longer.
    at_work: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "console"))
    at_journal: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "console-journal"))
    at_act: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "console-act"))
    at_login: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "console-login"))
    at_drawing: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "console-drawing"))
    at_broker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "console-broker"))
    at_provider: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "console-provider"))
    seen: tuple[float, BrokerStatus] = (float("-inf"), BrokerStatus())
    looking: Future[BrokerStatus] | None = None
    # When a read of the state waited in vain.
    busy: tuple[float, StateBusy | None] = (float("-inf"), None)
    # What workers were asked to look at, by kind, offering and key, and when.
    asked: dict[tuple[Hints[Any], str, str], datetime] = field(default_factory=dict)
    # The charts and tables of each offering's usage, and of when that is.
    usages: dict[str, tuple[datetime, Markup]] = field(default_factory=dict)

    @property
    def passwords(self) -> Path:
        return self.settings.state_dir / passwords.NAME

    async def do(self, work: Callable[[], Result]) -> Result:
        """Read the state. Raises StateBusy at once where a read before has just waited in vain."""

        def read() -> Result:
            since_s, busy = self.busy
            if busy is not None and time.monotonic() - since_s < BUSY_S:
                raise busy
            try:
                return work()
            except StateBusy as error:
                self.busy = time.monotonic(), error
                raise

        return await asyncio.get_running_loop().run_in_executor(self.at_work, read)

    async def search(self, work: Callable[[], Result]) -> Result:
        """Look through all of the journal, which may take seconds: other pages do not wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self.at_journal, work)

    async def act(self, work: Callable[[], Result]) -> Result:
        """Do what a person asked for: pages do not wait for the broker that it may need."""
        return await asyncio.get_running_loop().run_in_executor(self.at_act, work)

    def tries_of(self, name: str, caller: Caller) -> Tries:
        """Return the logins of a name from where a caller is. Those that are longest ago are forgotten where there are
        too many.
        """
        if len(self.tries) >= TRIES_KEPT:
            del self.tries[next(iter(self.tries))]
        return self.tries[name, caller.origin]

    async def do_login(self, work: Callable[[], Result]) -> Result:
        """Do what takes long before a person is logged in, and delays nobody else."""
        return await asyncio.get_running_loop().run_in_executor(self.at_login, work)

    async def broker(self) -> BrokerStatus:
        """Return what the broker and the workers said within the last seconds. A page does not wait for one that hangs:
        it says so beside what was said before.
        """
        if time.monotonic() - self.seen[0] <= BROKER_SEEN_S:
            return self.seen[1]
        if self.looking is None or self.looking.done():
            self.looking = asyncio.get_running_loop().run_in_executor(self.at_broker, self._look)
        done, _ = await asyncio.wait({self.looking}, timeout=self.broker_patience_s)
        if done:
            return self.looking.result()
        url = str(self.settings.broker_url)
        said = (
            f"the broker {url} takes long to answer: what is shown of queues and workers is old, or missing"
        )
        return replace(self.seen[1], url=url, problem=said)

    def _look(self) -> BrokerStatus:
        found = picture.without_broker(self.settings) or inspection.look(self.settings)
        self.seen = (time.monotonic(), found)
        return found


class Handler(RequestHandler):
    """A page. Who is not logged in is sent to the login, but for the login itself."""

    is_open = False
    login: Person | None = None

    @property
    def console(self) -> Console:
        found = self.application.settings["console"]
        assert isinstance(found, Console)
        return found

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def initialize(self) -> None:
        self.caller = caller_of(self.request, self.console.settings.console.proxies)
        if not self.stream.closed():
            waits_ms = int(self.console.slow_reader_s * 1000)
            self.stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, waits_ms)

    async def prepare(self) -> None:
        if not (self.caller.is_encrypted or self.caller.is_local):
            raise HTTPError(
                HTTPStatus.FORBIDDEN,
                f"the way from {self.caller.address} is not encrypted: use https://, by a proxy that `console.proxies` "
                "names and that sends X-Forwarded-For and X-Forwarded-Proto",
            )
        self.login = await self._logged_in()
        if self.login is None and not self.is_open:
            if self.request.method == "GET":
                self.redirect("/login", status=HTTPStatus.SEE_OTHER)
                raise Finish
            raise HTTPError(HTTPStatus.FORBIDDEN, "you are not logged in, or not any more")

    async def _logged_in(self) -> Person | None:
        """Return whose session the cookie names, with the role that the person has now. A cookie that is forged, too
        old or of a session that has ended names none.
        """
        session = self.console.sessions.get(self._session_key())
        if session is None or session.expires_s <= time.monotonic():
            return None
        if not session.hash:
            return session.person
        login = (await self.console.do(lambda: passwords.read(self.console.passwords))).get(
            session.person.name
        )
        return login if login and login.hash == session.hash else None

    def _session_key(self) -> str:
        token = self.get_signed_cookie(self.console.cookie, max_age_days=SESSION_S / 86400) or b""
        return hashlib.sha256(token).hexdigest()

    def set_cookie(self, *values: Any, **attributes: Any) -> None:
        super().set_cookie(*values, secure=self.caller.is_encrypted, **attributes)

    @property
    def stream(self) -> IOStream:
        connection = self.request.connection
        assert isinstance(connection, HTTP1Connection)
        return connection.stream

    def show(self, page: str, **content: Any) -> None:
        """Answer with a page."""
        who = {"name": self.login.name, "role": self.login.role} if self.login else {"name": "", "role": ""}
        form = {"xsrf": self.xsrf_token.decode(), "path": self.request.path, "notice": ""}
        state = self.console.settings.state_dir / NAME
        if self.login and not os.path.exists(state):
            form["notice"] = (
                f"There is no state file {state}: no pass has run on this host yet, or it was deleted: then stop the "
                "worker and restore a backup (docs/state.md)."
            )
        self.set_header(
            "Content-Security-Policy", f"{pages.policy(page, forms=True)}; frame-ancestors 'none'"
        )
        self.finish(pages.render(page, console={**who, **form}, **content))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Say why, with the words of our own errors only."""
        error = (kwargs.get("exc_info") or (None, None))[1]
        said = HTTPStatus(status_code).phrase
        if isinstance(error, SiteAgentError):
            said = str(error)
            self.set_status(
                HTTPStatus.CONFLICT if isinstance(error, PlanChanged) else HTTPStatus.SERVICE_UNAVAILABLE
            )
        elif isinstance(error, HTTPError) and error.log_message:
            said = error.log_message % error.args
        self.show("console_refused", said=said)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if isinstance(value, SiteAgentError):
            log.warning("the console: %s", value)
        else:
            super().log_exception(typ, value, tb)


class Nothing(Handler):
    def get(self) -> None:
        raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such page")
