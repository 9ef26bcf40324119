# SPDX-License-Identifier: MIT
"""What an application answers to requests, and the step between it and tornado, which reads and writes HTTP.

tornado's handlers and its parsing of arguments are left out: they would be a third of what a request costs, and tests
ask hundreds of thousands of times.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import Enum, auto
from functools import lru_cache, partial
from http.client import responses
from time import time
from typing import TypeAlias, cast
from urllib.parse import parse_qsl

from tornado.http1connection import HTTP1Connection
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerConnectionDelegate,
    HTTPServerRequest,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.web import Application

log = logging.getLogger(__name__)

# Close at once, and with a reset.
_NO_LINGER = struct.pack("ii", 1, 0)
_WITHOUT_BODY = (204, 304)


@dataclass(kw_only=True, slots=True)
class Request:
    method: str
    # As sent: the path, and the query where there is one.
    target: str
    headers: HTTPHeaders
    body: bytes
    remote_ip: str
    path: str = field(init=False)
    query_text: str = field(init=False)

    def __post_init__(self) -> None:
        self.path, _, self.query_text = self.target.partition("?")

    @property
    def root_url(self) -> str:
        return f"http://{self.headers.get('Host', '')}"

    def query(self) -> dict[str, list[str]]:
        values: dict[str, list[str]] = {}
        for name, value in _pairs(self.query_text):
            values.setdefault(name, []).append(value)
        return values


class Ending(Enum):
    """What the client gets of a response."""

    WHOLE = auto()
    # Half of the body that was promised.
    HALF = auto()
    # Nothing but a reset: it sees a broken connection, not an end of file.
    RESET = auto()


@dataclass(kw_only=True, slots=True)
class Response:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""
    ending: Ending = Ending.WHOLE


@dataclass(kw_only=True, slots=True)
class Later:
    """What comes instead of a response that has to wait."""

    after_s: float
    respond: Callable[[], Response]


Respond: TypeAlias = Callable[[Request], Response | Later]


class Site(HTTPServerConnectionDelegate):
    """What a server serves: one function for all paths but those of WebSockets."""

    def __init__(self, respond: Respond, websockets: Application, websocket_path: str) -> None:
        self.respond = respond
        self.websockets = websockets
        self.websocket_path = websocket_path

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        return _Message(self, cast(HTTP1Connection, request_conn))


class _Message(HTTPMessageDelegate):
    """One request, as its parts come."""

    def __init__(self, site: Site, connection: HTTP1Connection) -> None:
        self._site = site
        self._connection = connection
        self._body = b""

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        self._start_line = cast(RequestStartLine, start_line)
        self._headers = headers
        return None

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        self._body += chunk
        return None

    def finish(self) -> None:
        connection, line, headers = self._connection, self._start_line, self._headers
        request = Request(
            method=line.method,
            target=line.path,
            headers=headers,
            body=self._body,
            remote_ip=getattr(connection.context, "remote_ip", ""),
        )
        if request.path == self._site.websocket_path:
            self._site.websockets(HTTPServerRequest(start_line=line, headers=headers, connection=connection))
        else:
            self._answer(request, partial(self._site.respond, request))

    def _answer(self, request: Request, respond: Callable[[], Response | Later]) -> None:
        try:
            response = respond()
        except Exception:
            log.exception("%s %s", request.method, request.target)
            response = Response(status=500)
        if isinstance(response, Later):
            loop = asyncio.get_running_loop()
            loop.call_later(response.after_s, self._answer, request, response.respond)
        else:
            _write(self._connection, response, is_head=request.method == "HEAD")


def _write(connection: HTTP1Connection, response: Response, *, is_head: bool) -> None:
    status, content = response.status, response.content
    if response.ending is Ending.RESET:
        if not connection.stream.closed():
            connection.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        connection.close()
        return
    headers = HTTPHeaders({"Date": http_date(int(time())), **response.headers})
    if status not in _WITHOUT_BODY:
        headers["Content-Length"] = str(len(content))
    if is_head:
        content = b""
    elif response.ending is Ending.HALF:
        content = content[: len(content) // 2]
    start_line = ResponseStartLine("HTTP/1.1", status, responses.get(status, "Unknown"))
    sent = connection.write_headers(start_line, headers, content)
    if response.ending is Ending.HALF:
        sent.add_done_callback(lambda _: connection.close())
    else:
        connection.finish()


@lru_cache(maxsize=256)  # clients ask the same again and again
def _pairs(query: str) -> tuple[tuple[str, str], ...]:
    return tuple(parse_qsl(query, keep_blank_values=True))


@lru_cache(maxsize=8)
def http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
