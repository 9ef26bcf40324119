# SPDX-License-Identifier: MIT
"""The console's server, on Tornado: its pages are the routes of the modules beside it. TLS where the settings have a
certificate.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import ssl
from zlib import crc32

from tornado.httpserver import HTTPServer
from tornado.ioloop import PeriodicCallback
from tornado.web import Application, RequestHandler

from agent.cli.web import (
    allocations,
    audit,
    home,
    login,
    looks,
    offerings,
    orders,
    people,
    plan,
    queues,
    usage,
)
from agent.cli.web.handler import Console, Nothing
from agent.config.model import ConsoleSettings, Settings
from agent.core.errors import ConfigError
from tasks import current

log = logging.getLogger(__name__)

PAGES = (home, plan, allocations, people, orders, usage, audit, queues, offerings, looks, login)

BODY_BYTES, HEADER_BYTES = 2**20, 2**14
# Whoever has not sent a request by then is waited for no longer.
SLOW_SENDER_S = 60.0
CERTIFICATE_LOOK_S = 60.0


class Certificate:
    """The certificate and its key, read again when they are changed; a pair that cannot be used leaves the last one."""

    def __init__(self, settings: ConsoleSettings) -> None:
        """Raises ConfigError."""
        self._files = (settings.certificate, settings.certificate_key or settings.certificate)
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._read: list[int] = []
        try:
            self._load()
        except OSError as error:
            raise ConfigError(self._sentence(error)) from error

    def look(self) -> None:
        try:
            self._load()
        except OSError as error:
            log.warning("%s: the one before stays", self._sentence(error))

    def _load(self) -> None:
        """Load them where they have changed since. Raises OSError."""
        changed = [os.stat(each).st_mtime_ns for each in self._files]
        if changed != self._read:
            # What fails leaves a context with half of it. A key with a password would be asked for on the terminal.
            for context in (ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), self.context):
                context.load_cert_chain(*self._files, password="")
            self._read = changed

    def _sentence(self, error: OSError) -> str:
        files = " and ".join(dict.fromkeys(self._files))
        return f"the console's certificate in {files} cannot be used: {error.strerror or error}"


def _log(handler: RequestHandler) -> None:
    log.debug("%s %s %s", handler.get_status(), handler.request.method, handler.request.path)


def start(settings: Settings, host: str, port: int) -> HTTPServer:
    """Listen, in the event loop that runs. Raises OSError where the address cannot be had, ConfigError for a
    certificate that cannot be used.
    """
    certificate = Certificate(settings.console) if settings.console.certificate else None
    routes = [route for page in PAGES for route in page.ROUTES]
    provider = None
    if settings.console.oidc is not None:
        # Imported here: only who has a provider pays for what speaks with it.
        from agent.cli.web import oidc

        provider, routes = oidc.Provider(settings.console.oidc), [*routes, *oidc.ROUTES]
    # Whatever of `tasks` asks for settings gets these, without logins.
    current.use(settings)
    application = Application(
        routes,
        console=Console(settings, f"console_session_{crc32(f'{socket.gethostname()}:{port}'.encode()):08x}"),
        cookie_secret=secrets.token_bytes(32),
        xsrf_cookies=True,
        xsrf_cookie_kwargs={"httponly": True, "samesite": "Strict"},
        default_handler_class=Nothing,
        log_function=_log,
        provider=provider,
    )
    server = HTTPServer(
        application,
        max_body_size=BODY_BYTES,
        max_header_size=HEADER_BYTES,
        body_timeout=SLOW_SENDER_S,
        idle_connection_timeout=SLOW_SENDER_S,
        ssl_options=certificate and certificate.context,
    )
    if certificate:
        PeriodicCallback(certificate.look, CERTIFICATE_LOOK_S * 1000).start()
    server.listen(port, host)
    return server
