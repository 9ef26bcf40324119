# SPDX-License-Identifier: MIT
"""The console's server, on Tornado: its pages are the routes of the modules beside it."""

from __future__ import annotations

import logging
import secrets

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from agent.cli.web import home, login, plan
from agent.cli.web.handler import Console, Nothing
from agent.config.model import Settings
from tasks import current

log = logging.getLogger(__name__)

BODY_BYTES, HEADER_BYTES = 2**20, 2**14
SLOW_READER_S = 60.0


def _log(handler: RequestHandler) -> None:
    log.debug("%s %s %s", handler.get_status(), handler.request.method, handler.request.path)


def start(settings: Settings, host: str, port: int) -> HTTPServer:
    """Listen, in the event loop that runs. Raises OSError where the address cannot be had."""
    # Whatever of `tasks` asks for settings gets these, without logins.
    current.use(settings)
    application = Application(
        [route for page in (home, plan, login) for route in page.ROUTES],
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
