# SPDX-License-Identifier: MIT
"""A proxy for tests: SOCKS5 with a password, and HTTP's CONNECT. It knows every name, as this host."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

USER, PASSWORD = "agent", "pr0xy-pass"


class Proxy:
    """A proxy of HTTP and SOCKS that remembers what it was asked for."""

    def __init__(self) -> None:
        # Hosts and ports.
        self.asked: list[tuple[str, int]] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._open: list[socket.socket] = []

    def url(self, scheme: str, password: str = PASSWORD) -> str:
        return f"{scheme}://{USER}:{password}@127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._server, *self._open):
            _end(each)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        try:
            is_socks = client.recv(1, socket.MSG_PEEK) == b"\x05"
            place = _socks(client) if is_socks else _connect(client)
            if place is None:
                client.close()
                return
            self.asked.append(place)
            server = socket.create_connection(("127.0.0.1", place[1]))
            self._open.append(server)
            client.sendall(b"\x05\x00\x00\x01" + bytes(6) if is_socks else b"HTTP/1.1 200 OK\r\n\r\n")
            threading.Thread(target=_pipe, args=(server, client), daemon=True).start()
            _pipe(client, server)
        except OSError:
            _end(client)


def _socks(client: socket.socket) -> tuple[str, int] | None:
    methods = _read(client, _read(client, 2)[1])
    assert 2 in methods, "a login was expected"
    client.sendall(b"\x05\x02")
    user = _read(client, _read(client, 2)[1])
    password = _read(client, _read(client, 1)[0])
    if (user, password) != (USER.encode(), PASSWORD.encode()):
        client.sendall(b"\x01\x01")
        return None
    client.sendall(b"\x01\x00")
    kind = _read(client, 4)[3]
    host = _read(client, _read(client, 1)[0]).decode() if kind == 3 else socket.inet_ntoa(_read(client, 4))
    return host, struct.unpack(">H", _read(client, 2))[0]


def _connect(client: socket.socket) -> tuple[str, int] | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += _read(client, 1)
    wanted = base64.b64encode(f"{USER}:{PASSWORD}".encode())
    if wanted not in head:
        client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        return None
    host, _, port = head.split()[1].decode().rpartition(":")
    return host, int(port)


def _read(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = client.recv(count - len(found))
        if not more:
            raise OSError("the client hung up")
        found += more
    return found


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    _end(source)
    _end(target)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
