# SPDX-License-Identifier: MIT
"""A WebSocket's side of the server (RFC 6455): messages in both directions, and nothing that has to be agreed on."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable

from simulator.server.http1 import Request, Response

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_FINAL, _MASKED = 0x80, 0x80
_CONTINUATION, _TEXT, _CLOSE, _PING, _PONG = 0, 1, 8, 9, 10
# How long a client may take to close its side, too.
_CLOSE_S = 5.0


class WebSocket:
    """One connection. All of it belongs to the server's thread."""

    def opened(self) -> None: ...

    def received(self, message: bytes) -> None:
        raise NotImplementedError

    def closed(self) -> None: ...

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Take the messages of a client until it closes the connection."""
        self.loop = asyncio.get_running_loop()
        self._writer = writer
        self.is_open = True
        self.opened()
        try:
            message = b""
            while True:
                is_final, kind, data = await _frame(reader)
                if kind == _CLOSE:
                    self.close()
                    return
                if kind == _PING:
                    self._write(_PONG, data)
                elif kind != _PONG:
                    message += data
                    if is_final and self.is_open:
                        self.received(message)
                    if is_final:
                        message = b""
        finally:
            self.is_open = False
            self.closed()

    def send(self, message: bytes) -> None:
        """Send a message; a connection that is closing takes none."""
        if self.is_open:
            self._write(_TEXT, message)

    def close(self) -> None:
        if self.is_open:
            self._write(_CLOSE, b"")
            self.is_open = False
            self.loop.call_later(_CLOSE_S, self._writer.close)

    def _write(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            length = bytes([size])
        else:
            length = b"\x7e" + size.to_bytes(2) if size < 2**16 else b"\x7f" + size.to_bytes(8)
        self._writer.write(bytes([_FINAL | kind]) + length + data)


def upgrade(request: Request, make: Callable[[], WebSocket]) -> Response:
    """Return the response that hands the connection over."""
    key = request.headers.get("sec-websocket-key")
    if key is None or request.headers.get("upgrade", "").lower() != "websocket":
        return Response(status=400, content=b"Only WebSockets are served here.\n")
    accepted = base64.b64encode(hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest())
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accepted.decode()}
    return Response(status=101, headers=headers, successor=make().serve)


async def _frame(reader: StreamReader) -> tuple[bool, int, bytes]:
    """Return whether a frame is the last one of its message, what it is, and what it says."""
    first, second = await reader.readexactly(2)
    size = second & ~_MASKED
    if size >= 126:
        size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8))
    mask = await reader.readexactly(4 if second & _MASKED else 0)
    data = await reader.readexactly(size)
    if mask:
        repeated = (mask * (size // 4 + 1))[:size]
        data = (int.from_bytes(data) ^ int.from_bytes(repeated)).to_bytes(size)
    return bool(first & _FINAL), first & 0x0F, data
