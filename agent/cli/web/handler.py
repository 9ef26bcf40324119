# SPDX-License-Identifier: MIT
"""What all pages of the console share: the person who looks, the threads that wait, headers and errors.

The process has no token for Waldur and starts no command of a cluster. What may wait (the state file, the broker,
hashes) runs in threads, so that a slow one delays no other person's page.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from tornado.web import Finish, HTTPError, RequestHandler

from agent.cli import pages
from agent.cli.web import passwords
from agent.cli.web.passwords import Login
from agent.config.model import Settings
from agent.core.errors import SiteAgentError
from agent.run.diagnosis import picture
from agent.run.diagnosis.picture import BrokerStatus
from agent.state.held_plans import PlanChanged
from tasks.queue import inspection

log = logging.getLogger(__name__)

Result = TypeVar("Result")

SESSION = "console_session"
SESSION_S = 8 * 3600.0
BROKER_SEEN_S = 15.0
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
    """Logins of one name."""

    failed: int = 0
    waiting: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Session:
    name: str
    # Whoever sets another password ends the sessions of the one before.
    hash: bytes
    expires_s: float


@dataclass
class Console:
    """What the handlers share."""

    settings: Settings
    # By the digest of what is in the cookie; lost with the process.
    sessions: dict[str, Session] = field(default_factory=dict)
    # One for all names that are not in the file.
    tries: dict[str, Tries] = field(default_factory=lambda: defaultdict(Tries))
    # The state file, and hashes: one after the other. The broker, whose workers take seconds to answer.
    at_work: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "console"))
    at_broker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "console-broker"))
    seen: tuple[float, BrokerStatus] = (float("-inf"), BrokerStatus())

    @property
    def passwords(self) -> Path:
        return self.settings.state_dir / passwords.NAME

    async def do(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self.at_work, work)

    async def broker(self) -> BrokerStatus:
        """Return what the broker and the workers said within the last seconds."""
        return await asyncio.get_running_loop().run_in_executor(self.at_broker, self._look)

    def _look(self) -> BrokerStatus:
        if time.monotonic() - self.seen[0] > BROKER_SEEN_S:
            found = picture.without_broker(self.settings) or inspection.look(self.settings)
            self.seen = (time.monotonic(), found)
        return self.seen[1]


class Handler(RequestHandler):
    """A page. Who is not logged in is sent to the login, but for the login itself."""

    is_open = False
    login: Login | None = None

    @property
    def console(self) -> Console:
        found = self.application.settings["console"]
        assert isinstance(found, Console)
        return found

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in HEADERS.items():
            self.set_header(name, value)

    async def prepare(self) -> None:
        self.login = await self._logged_in()
        if self.login is None and not self.is_open:
            if self.request.method == "GET":
                self.redirect("/login", status=HTTPStatus.SEE_OTHER)
                raise Finish
            raise HTTPError(HTTPStatus.FORBIDDEN, "you are not logged in, or not any more")

    async def _logged_in(self) -> Login | None:
        """Return whose session the cookie names, with the role that the person has now. A cookie that is forged, too
        old or of a session that has ended names none.
        """
        session = self.console.sessions.get(self._session_key())
        if session is None or session.expires_s <= time.monotonic():
            return None
        login = (await self.console.do(lambda: passwords.read(self.console.passwords))).get(session.name)
        return login if login and login.hash == session.hash else None

    def _session_key(self) -> str:
        token = self.get_signed_cookie(SESSION, max_age_days=SESSION_S / 86400) or b""
        return hashlib.sha256(token).hexdigest()

    def show(self, page: str, **content: Any) -> None:
        """Answer with a page."""
        who = {"name": self.login.name, "role": self.login.role} if self.login else {"name": "", "role": ""}
        self.set_header(
            "Content-Security-Policy", f"{pages.policy(page, forms=True)}; frame-ancestors 'none'"
        )
        self.finish(pages.render(page, console={**who, "xsrf": self.xsrf_token.decode()}, **content))

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
            said = error.log_message
        self.show("console_refused", said=said)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if isinstance(value, SiteAgentError):
            log.warning("the console: %s", value)
        else:
            super().log_exception(typ, value, tb)


class Nothing(Handler):
    def get(self) -> None:
        raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such page")
