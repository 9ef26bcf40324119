# SPDX-License-Identifier: MIT
"""A console in a thread of the test, of a site on which a plan waits."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from http import HTTPStatus
from pathlib import Path
from typing import Any

import requests
from tornado.httpserver import HTTPServer

from agent.cli.web import passwords, server
from agent.cli.web.handler import Console
from agent.cli.web.passwords import Login, new_login
from agent.cli.web.roles import Role
from agent.config.model import Settings
from agent.host.waiting import GIVE_UP_S
from agent.run.diagnosis.picture import WaitingPlan, waiting_plans
from rig.processes import free_ports

PASSWORD = "a long password"


@cache
def login(name: str, role: Role) -> Login:
    """Return a login with `PASSWORD`, one in each process: a hash takes 0.1 s of processor time, as it is to."""
    return new_login(name, role, PASSWORD)


@dataclass(frozen=True)
class Running:
    url: str
    settings: Settings
    found: WaitingPlan
    # What its handlers share.
    inside: Console
    # For each request of a session: headers, and whom to trust.
    headers: dict[str, str] = field(default_factory=dict)
    verify: str | bool = True

    @property
    def config(self) -> str:
        return self.settings.source

    @property
    def passwords(self) -> Path:
        return self.settings.state_dir / passwords.NAME

    @property
    def plan_path(self) -> str:
        return f"/plan/{self.found.plan.id}"

    @property
    def plan_url(self) -> str:
        return f"{self.url}{self.plan_path}"

    def session(self) -> requests.Session:
        session = requests.Session()
        session.headers.update(self.headers)
        session.verify = self.verify
        # Whose authorities would come before ours.
        session.trust_env = False
        return session

    def try_login(self, name: str, password: str) -> tuple[requests.Session, requests.Response]:
        session = self.session()
        values = {"name": name, "password": password, "_xsrf": xsrf(session.get(f"{self.url}/login"))}
        return session, session.post(f"{self.url}/login", values)

    def log_in(self, name: str, password: str = PASSWORD) -> requests.Session:
        """Return a session, which is logged in where the password is right."""
        session, answer = self.try_login(name, password)
        assert (answer.status_code == HTTPStatus.OK) is (password == PASSWORD), answer.text
        return session

    def approve(self, session: requests.Session, **changed: str) -> requests.Response:
        """Look at the plan, and approve what is seen; `changed`: other values of the form."""
        return self.send(session, self.plan_path, **{"act": "approve", **changed})

    def send(self, session: requests.Session, path: str, **changed: str) -> requests.Response:
        """Look at a page, and send a form with what is seen; `changed`: other values of it."""
        page = session.get(f"{self.url}{path}")
        shown = unescape(next(iter(re.findall('name="shown" value="([^"]*)"', page.text)), ""))
        form = {"reason": "an old course", "shown": shown, "_xsrf": xsrf(page), **changed}
        return session.post(f"{self.url}{path}", form)


def xsrf(page: requests.Response) -> str:
    found: list[str] = re.findall('name="_xsrf" value="([^"]*)"', page.text)
    return found[0]


@contextmanager
def serving(settings: Settings, *, port: int = 0, **more: Any) -> Iterator[Running]:
    """Run a console, on a free port; `more` is for `Running`."""
    found: Any = next(iter(waiting_plans(settings.state_dir, settings.offerings)), None)
    port = port or free_ports(1)[0]
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> HTTPServer:
        return server.start(settings, "127.0.0.1", port)

    try:
        running = asyncio.run_coroutine_threadsafe(start(), loop).result(GIVE_UP_S)
        scheme = "https" if settings.console.certificate else "http"
        inside: Any = running.request_callback
        yield Running(f"{scheme}://127.0.0.1:{port}", settings, found, inside.settings["console"], **more)
        loop.call_soon_threadsafe(running.stop)
        asyncio.run_coroutine_threadsafe(running.close_all_connections(), loop).result(GIVE_UP_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
