# SPDX-License-Identifier: MIT
"""Login with a name and a password of the file, and logout."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, TypeVar
from zlib import crc32

from tornado.web import Finish, HTTPError

from agent.cli.web import passwords
from agent.cli.web.caller import local_user
from agent.cli.web.handler import SESSION_S, Handler, Session
from agent.cli.web.passwords import NO_LOGIN, Login
from agent.cli.web.roles import LoginRefused, Person
from agent.state import journal

SESSIONS_AT_MOST = 1000
# After so many failures one more takes as long as that; more at once for one name from one address are refused.
SLOWEST_S = 10
TRIES_AT_ONCE = 4
# Names that nobody has are slowed in so many groups: if all were one, a quick answer would be a name that somebody has.
UNKNOWN_GROUPS = 16

Result = TypeVar("Result")


class Door(Handler):
    """A page on the way in."""

    is_open = True

    def begin(self, person: Person, hash_of_password: bytes = b"") -> None:
        """Begin a session of a person who has shown who it is."""
        sessions, now_s = self.console.sessions, time.monotonic()
        for key in [key for key, each in sessions.items() if each.expires_s <= now_s]:
            del sessions[key]
        while len(sessions) >= SESSIONS_AT_MOST:
            del sessions[next(iter(sessions))]
        token = secrets.token_urlsafe(32)
        sessions[hashlib.sha256(token.encode()).hexdigest()] = Session(
            person, now_s + SESSION_S, hash_of_password
        )
        self.set_signed_cookie(
            self.console.cookie, token, expires_days=None, httponly=True, samesite="Strict"
        )

    async def attempt(self, name: str, pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
        """Return what a try of a login brings. Those of one name from one caller come one after the other; one that is
        refused is in the journal, and takes the longer the more there were. Raises LoginRefused.
        """
        if self.stream.closed():
            raise Finish  # nobody waits for an answer
        if self.caller.is_local:
            connection = self.stream.socket
            self.caller = await self.console.do_login(lambda: local_user(self.caller, connection))
        tries = self.console.tries_of(name, self.caller)
        if tries.waiting >= TRIES_AT_ONCE:
            raise HTTPError(HTTPStatus.TOO_MANY_REQUESTS, "too many logins at once: try again in a minute")
        tries.waiting += 1
        try:
            async with tries.lock:
                try:
                    found = await asyncio.get_running_loop().run_in_executor(pool, work)
                except LoginRefused as refused:
                    tries.failed += 1
                    by, why = refused.by, refused.why and f": {refused.why}"
                    text = f"refused a login to the console from {self.caller}{why}"
                    await self.console.do(
                        lambda: journal.note(self.console.settings.state_dir, None, text, by=by)
                    )
                    await asyncio.sleep(min(tries.failed, SLOWEST_S))
                    raise
        finally:
            tries.waiting -= 1
        tries.failed = 0
        return found

    def show_login(self, said: str = "") -> None:
        self.show("console_login", said=said, has_oidc=self.console.settings.console.oidc is not None)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = (kwargs.get("exc_info") or (None, None))[1]
        if isinstance(error, LoginRefused):
            self.set_status(HTTPStatus.FORBIDDEN)
            self.show_login(str(error))
        else:
            super().write_error(status_code, **kwargs)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if not isinstance(value, LoginRefused):
            super().log_exception(typ, value, tb)


class LogIn(Door):
    def get(self) -> None:
        self.show_login()

    async def post(self) -> None:
        name, password = self.get_body_argument("name"), self.get_body_argument("password", strip=False)
        console = self.console
        login = (await console.do(lambda: passwords.read(console.passwords))).get(name, NO_LOGIN)

        def check() -> Login:
            if len(password) > passwords.LONGEST or not login.matches(password) or login is NO_LOGIN:
                raise LoginRefused("Name or password is wrong.", by=login.name or "an unknown name")
            return login

        slowed = login.name or str(crc32(name.encode()) % UNKNOWN_GROUPS)
        found = await self.attempt(slowed, console.at_login, check)
        self.begin(found, found.hash)
        self.redirect("/", status=HTTPStatus.SEE_OTHER)


class LogOut(Handler):
    def post(self) -> None:
        self.console.sessions.pop(self._session_key(), None)
        self.clear_cookie(self.console.cookie)
        self.redirect("/login", status=HTTPStatus.SEE_OTHER)


ROUTES = [("/login", LogIn), ("/logout", LogOut)]
