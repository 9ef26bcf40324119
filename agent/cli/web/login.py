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
from agent.cli.web.caller import local_user
from agent.cli.web.handler import SESSION, SESSION_S, Handler, Session
from agent.cli.web.roles import Person
from agent.state import journal

SESSIONS_AT_MOST = 1000
# After so many failures one more takes as long as that; more at once for one name from one address are refused.
SLOWEST_S = 10
TRIES_AT_ONCE = 4


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
        self.set_signed_cookie(SESSION, token, expires_days=None, httponly=True, samesite="Strict")

    async def refuse(self, by: str, said: str, *, why: str = "") -> None:
        """Write a refusal to the journal, and say so. `why` is for the journal alone."""
        text = f"refused a login to the console from {self.caller}{why and f': {why}'}"
        await self.console.do(lambda: journal.note(self.console.settings.state_dir, None, text, by=by))
        self.set_status(HTTPStatus.FORBIDDEN)
        self.show("console_login", said=said)


class LogIn(Door):
    def get(self) -> None:
        self.show("console_login", said="")

    async def post(self) -> None:
        name, password = self.get_body_argument("name"), self.get_body_argument("password", strip=False)
        console = self.console
        login = (await console.do(lambda: passwords.read(console.passwords))).get(name)
        if self.caller.is_local:
            connection = self.stream.socket
            self.caller = await console.do_login(lambda: local_user(self.caller, connection))
        tries = console.tries_of(login.name if login else "", self.caller)
        if tries.waiting >= TRIES_AT_ONCE:
            raise HTTPError(HTTPStatus.TOO_MANY_REQUESTS, "too many logins at once: try again in a minute")
        tries.waiting += 1
        try:
            async with tries.lock:
                is_right = await console.do_login(
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
            await self.refuse(login.name if login else "an unknown name", "Name or password is wrong.")
            return
        tries.failed = 0
        self.begin(login, login.hash)
        self.redirect("/", status=HTTPStatus.SEE_OTHER)


class LogOut(Handler):
    def post(self) -> None:
        self.console.sessions.pop(self._session_key(), None)
        self.clear_cookie(SESSION)
        self.redirect("/login", status=HTTPStatus.SEE_OTHER)


ROUTES = [("/login", LogIn), ("/logout", LogOut)]
