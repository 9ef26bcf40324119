# SPDX-License-Identifier: MIT
"""Login with a name and a password of the file, and logout."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from http import HTTPStatus

from tornado.web import HTTPError

from agent.cli.web import passwords
from agent.cli.web.handler import SESSION, SESSION_S, Handler, Session
from agent.cli.web.passwords import Login
from agent.state import journal

SESSIONS_AT_MOST = 1000
# After so many failures one more takes as long as that; more at once for one name are refused.
SLOWEST_S = 10
TRIES_AT_ONCE = 4


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


ROUTES = [("/login", LogIn), ("/logout", LogOut)]
