# SPDX-License-Identifier: MIT
"""HTTP/1.1 over asyncio's streams, as much of it as clients of the simulated server speak: kept connections, bodies
with a length or in chunks, HEAD, and connections that are handed over to another protocol.

Tests ask hundreds of thousands of times, and tornado takes four times as long for a request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from enum import Enum, auto
from functools import lru_cache
from http.client import responses
from time import time
from typing import TypeAlias
from urllib.parse import parse_qsl

log = logging.getLogger(__name__)

# Close at once, and with a reset.
_NO_LINGER = struct.pack("ii", 1, 0)
_END = b"\r\n\r\n"
_WITHOUT_BODY = (101, 204, 304)


@dataclass(kw_only=True, slots=True)
class Request:
    method: str
    # As sent: the path, and the query where there is one.
    target: str
    # By names in lower case.
    headers: dict[str, str]
    body: bytes
    remote_ip: str
    path: str = field(init=False)
    query_text: str = field(init=False)

    def __post_init__(self) -> None:
        self.path, _, self.query_text = self.target.partition("?")

    @property
    def root_url(self) -> str:
        return f"http://{self.headers.get('host', '')}"

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
    # Has the connection once this response is sent, and until it returns.
    successor: Callable[[StreamReader, StreamWriter], Awaitable[None]] | None = None


Application: TypeAlias = Callable[[Request], Awaitable[Response]]


async def serve(
    application: Application, reader: StreamReader, writer: StreamWriter, *, idle_s: float
) -> None:
    """Answer the requests of one connection, one after the other, until it ends or is idle for so long."""
    try:
        while True:
            async with asyncio.timeout(idle_s):
                head = await reader.readuntil(_END)
            try:
                request, is_last = await _request(head, reader, writer)
            except ValueError as error:
                _write(writer, Response(status=400, content=f"{error}\n".encode()))
                return
            try:
                response = await application(request)
            except Exception:
                log.exception("%s %s", request.method, request.target)
                response, is_last = Response(status=500), True
            if response.ending is Ending.RESET:
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                writer.transport.abort()
                return
            _write(writer, response, is_head=request.method == "HEAD")
            if response.successor is not None:
                await response.successor(reader, writer)
                return
            if is_last or response.ending is Ending.HALF:
                return
            await writer.drain()
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        return  # idle for too long, or the client has gone
    finally:
        writer.close()


async def _request(head: bytes, reader: StreamReader, writer: StreamWriter) -> tuple[Request, bool]:
    """Return a request with its body, and whether its connection ends after it. Raises ValueError for what is none."""
    first, *lines = head[: -len(_END)].decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"this is no header: {line}")
        headers[name.lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "transfer-encoding" in headers:
        body = await _chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    address = writer.get_extra_info("peername")[0]
    request = Request(method=method, target=target, headers=headers, body=body, remote_ip=address)
    return request, version == "HTTP/1.0" or headers.get("connection", "").lower() == "close"


async def _chunks(reader: StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # headers after the last chunk
    return body


def _write(writer: StreamWriter, response: Response, *, is_head: bool = False) -> None:
    status, content = response.status, response.content
    lines = [f"HTTP/1.1 {status} {responses.get(status, 'Unknown')}"]
    headers = {"Date": http_date(int(time())), **response.headers}
    if status not in _WITHOUT_BODY:
        headers["Content-Length"] = str(len(content))
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if is_head:
        content = b""
    elif response.ending is Ending.HALF:
        content = content[: len(content) // 2]
    writer.write("\r\n".join(lines).encode("latin-1") + _END + content)


@lru_cache(maxsize=256)  # clients ask the same again and again
def _pairs(query: str) -> tuple[tuple[str, str], ...]:
    return tuple(parse_qsl(query, keep_blank_values=True))


@lru_cache(maxsize=8)
def http_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
