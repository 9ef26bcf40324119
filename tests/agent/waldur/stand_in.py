# SPDX-License-Identifier: MIT
"""A tiny HTTP server for what the simulated Waldur cannot do: odd headers, broken bodies, TLS, being a proxy."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`sent` bytes of the body go out (all of them: None) before the connection is closed.

    `wait` holds the answer back until the server stops; `hang_up` closes the connection instead. `trickle`: from its
    "headers" or its "body" on, the answer comes byte by byte.
    """

    status: int = 200
    body: bytes = b"[]"
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    sent: int | None = None
    wait: bool = False
    hang_up: bool = False
    trickle: str = ""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as it came; `target` is an absolute URL where the stand-in was used as a proxy."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: tuple[str, int]

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode()))


Script = Callable[[Asked], Answer]


def says(value: Any, status: int = 200, **headers: str) -> Answer:
    """A JSON answer; underscores in header names are dashes."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    body = json.dumps(value).encode()
    return Answer(status=status, body=body, headers={"Content-Type": "application/json", **named})


def html(body: str, status: int = 200) -> Answer:
    return Answer(status=status, body=body.encode(), headers={"Content-Type": "text/html; charset=utf-8"})


def in_turn(*answers: Answer) -> Script:
    """The answers one after the other, the last one for ever."""
    left = list(answers)
    lock = threading.Lock()

    def script(_: Asked) -> Answer:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return script


class StandIn:
    """Serves `script` on a free loopback port; `asked` holds what came. `certificate` (PEM, key included): TLS."""

    def __init__(self, script: Script, *, certificate: str = "") -> None:
        self.asked: list[Asked] = []
        self.stopping = threading.Event()
        self._scheme = "https" if certificate else "http"
        handler = type("Handler", (_Handler,), {"stand_in": self, "script": staticmethod(script)})
        self._server = _Server(("127.0.0.1", 0), handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def root(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/api/"

    def connections(self) -> set[tuple[str, int]]:
        return {asked.connection for asked in self.asked}

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or refuses our certificate, is part of the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536
    disable_nagle_algorithm = True
    stand_in: ClassVar[StandIn]
    script: ClassVar[Script]

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        asked = Asked(
            method=self.command,
            target=self.path,
            headers=dict(self.headers.items()),
            body=self.rfile.read(length),
            connection=self.client_address,
        )
        self.stand_in.asked.append(asked)
        answer = type(self).script(asked)
        if answer.wait:
            self.stand_in.stopping.wait(30)
        if answer.hang_up:
            self.close_connection = True
            return
        if answer.trickle == "headers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            self._trickle(b"a" * 60_000)
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if answer.trickle:
            self._trickle(answer.body)
            return
        self.wfile.write(answer.body[: answer.sent])
        self.close_connection = self.close_connection or answer.sent is not None

    def _trickle(self, data: bytes) -> None:
        self.close_connection = True
        for byte in data:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            if self.stand_in.stopping.wait(0.02):
                return

    do_GET = do_POST = do_DELETE = do_CONNECT = answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the terminal of the tests."""
