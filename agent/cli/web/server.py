# SPDX-License-Identifier: MIT
"""The console's pages, on Tornado. They show what the state file of this host and the broker say; the one act is the
approval of a held plan, by the same function as the command's.

The process has no token for Waldur and starts no command of a cluster. What may wait (the state file, the broker,
hashes) runs in threads, so that a slow one delays no other person's page.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from tornado.httpserver import HTTPServer
from tornado.web import Application, Finish, HTTPError, RequestHandler

from agent.cli import approve, full_passes, pages, status_page
from agent.cli.web import passwords
from agent.cli.web.passwords import Login
from agent.cli.web.roles import Role
from agent.config.model import Settings
from agent.core.errors import SiteAgentError
from agent.run.diagnosis import picture
from agent.run.diagnosis.picture import BrokerStatus, WaitingPlan
from agent.state import journal
from agent.state.held_plans import PlanChanged
from tasks import current
from tasks.queue import inspection

log = logging.getLogger(__name__)

Result = TypeVar("Result")

SESSION = "console_session"
SESSION_S = 8 * 3600.0
SESSIONS_AT_MOST = 1000
REFRESH_S = 30
BROKER_SEEN_S = 15.0
APPROVAL_LASTS = timedelta(hours=24)
# After so many failures one more takes as long as that; more at once for one name are refused.
SLOWEST_S = 10
TRIES_AT_ONCE = 4
LONGEST_REASON = 500
BODY_BYTES, HEADER_BYTES = 2**20, 2**14
SLOW_READER_S = 60.0
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


class Home(Handler):
    async def get(self) -> None:
        console = self.console
        broker = await console.broker()
        settings = console.settings
        text = await console.do(
            lambda: status_page.content(picture.of_site(settings, settings.offerings, broker), {})
        )
        self.show("status", refresh_s=REFRESH_S, **text)


class Plan(Handler):
    """A held plan with all its actions; and its approval."""

    async def _plan(self, plan_id: str) -> WaitingPlan:
        settings = self.console.settings
        waiting = await self.console.do(lambda: picture.waiting_plans(settings.state_dir, settings.offerings))
        found = next((each for each in waiting if each.plan.id == plan_id), None)
        if found is None:
            raise HTTPError(
                HTTPStatus.NOT_FOUND, "this plan is not held any more: nothing wants it, or it is done"
            )
        return found

    async def get(self, plan_id: str) -> None:
        found = await self._plan(plan_id)
        self.show("console_plan", each=found, marks=" ".join(found.plan.marks))

    async def post(self, plan_id: str) -> None:
        if self.login is None or self.login.role is not Role.OPERATOR:
            raise HTTPError(HTTPStatus.FORBIDDEN, "you may look: only an operator approves a plan")
        reason = " ".join(self.get_body_argument("reason").split())[:LONGEST_REASON]
        if not reason:
            raise HTTPError(HTTPStatus.BAD_REQUEST, "say why: the journal has it beside your name")
        found, settings, by = await self._plan(plan_id), self.console.settings, f"{self.login.name} (console)"
        shown = frozenset(self.get_body_argument("shown").split())

        def work() -> None:
            approve.release(settings, found, lasts=APPROVAL_LASTS, by=by, reason=reason, shown=shown)
            full_passes.queue(settings, found.held.offering)

        await self.console.do(work)
        self.redirect(f"/plan/{plan_id}", status=HTTPStatus.SEE_OTHER)


class LogIn(Handler):
    is_open = True

    def get(self) -> None:
        self.show("console_login", said="")

    async def post(self) -> None:
        name, password = self.get_body_argument("name"), self.get_body_argument("password", strip=False)
        console = self.console
        login = (await console.do(lambda: passwords.read(console.passwords))).get(name)
        tries = console.tries[login.name if login else ""]
        if tries.waiting >= TRIES_AT_ONCE:
            raise HTTPError(HTTPStatus.TOO_MANY_REQUESTS, "too many logins at once: try again in a minute")
        tries.waiting += 1
        try:
            async with tries.lock:
                is_right = await console.do(
                    lambda: (
                        len(password) <= passwords.LONGEST and (login or passwords.NO_LOGIN).matches(password)
                    )
                )
                if not is_right:
                    tries.failed += 1
                    await asyncio.sleep(min(tries.failed, SLOWEST_S))
        finally:
            tries.waiting -= 1
        if login is None or not is_right:
            known = login.name if login else "an unknown name"
            text = f"refused a login to the console from {self.request.remote_ip}"
            await console.do(lambda: journal.note(console.settings.state_dir, None, text, by=known))
            self.set_status(HTTPStatus.FORBIDDEN)
            self.show("console_login", said="Name or password is wrong.")
            return
        tries.failed = 0
        self._begin(login)
        self.redirect("/", status=HTTPStatus.SEE_OTHER)

    def _begin(self, login: Login) -> None:
        sessions, now_s = self.console.sessions, time.monotonic()
        for key in [key for key, each in sessions.items() if each.expires_s <= now_s]:
            del sessions[key]
        while len(sessions) >= SESSIONS_AT_MOST:
            del sessions[next(iter(sessions))]
        token = secrets.token_urlsafe(32)
        sessions[hashlib.sha256(token.encode()).hexdigest()] = Session(
            login.name, login.hash, now_s + SESSION_S
        )
        self.set_signed_cookie(SESSION, token, expires_days=None, httponly=True, samesite="Strict")


class LogOut(Handler):
    def post(self) -> None:
        self.console.sessions.pop(self._session_key(), None)
        self.clear_cookie(SESSION)
        self.redirect("/login", status=HTTPStatus.SEE_OTHER)


class Nothing(Handler):
    def get(self) -> None:
        raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such page")


def _log(handler: RequestHandler) -> None:
    log.debug("%s %s %s", handler.get_status(), handler.request.method, handler.request.path)


def start(settings: Settings, host: str, port: int) -> HTTPServer:
    """Listen, in the event loop that runs. Raises OSError where the address cannot be had."""
    # Whatever of `tasks` asks for settings gets these, without logins.
    current.use(settings)
    application = Application(
        [("/", Home), ("/plan/([0-9a-f]{64})", Plan), ("/login", LogIn), ("/logout", LogOut)],
        console=Console(settings),
        cookie_secret=secrets.token_bytes(32),
        xsrf_cookies=True,
        xsrf_cookie_kwargs={"httponly": True, "samesite": "Strict"},
        default_handler_class=Nothing,
        log_function=_log,
    )
    server = HTTPServer(
        application,
        max_body_size=BODY_BYTES,
        max_header_size=HEADER_BYTES,
        body_timeout=SLOW_READER_S,
        idle_connection_timeout=SLOW_READER_S,
    )
    server.listen(port, host)
    return server
