# SPDX-License-Identifier: MIT
"""Connections that no server can hold, to a host or to a Unix socket: a whole answer has a time.

requests bounds the time of each read alone: a server that sends a byte now and then, in its headers too, would hold it.
Neither requests nor urllib3 has a setting for a whole answer, or for a Unix socket. A pool of urllib3 makes connections
by its `ConnectionCls`, and a connection of http.client answers by its `response_class`: ours stand in both places.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPResponse
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError

POOL_SIZE = 8


class AnswerTooLong(OSError):
    """An answer is larger, has more values, or took longer, than the bounds allow."""


class Adapter(HTTPAdapter):
    """Sends requests to one address; has an answer that takes longer than `answer_s` raise AnswerTooLong.

    `unix_socket`: the path of the socket that all requests go to.
    """

    def __init__(self, *, answer_s: float, unix_socket: str = "") -> None:
        self._answer_s = answer_s
        self._unix_socket = unix_socket
        self._lock = threading.Lock()
        self._pool: Any = None
        super().__init__(pool_maxsize=POOL_SIZE)

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """Return the pool for a request, of a proxy too, with connections of ours: the same one, until it is closed, as
        all requests go to one address.
        """
        with self._lock:
            if self._pool is None:
                pool: Any = super().get_connection_with_tls_context(*args, **options)
                make = (
                    partial(_SocketConnection, self._unix_socket) if self._unix_socket else pool.ConnectionCls
                )
                pool.ConnectionCls = partial(_connection, make, self._answer_s)
                self._pool = pool
            return self._pool

    def close(self) -> None:
        with self._lock:
            super().close()
            self._pool = None


def _connection(make: Callable[..., Any], answer_s: float, **options: Any) -> Any:
    made = make(**options)

    def answer(sock: socket.socket, **details: Any) -> HTTPResponse:
        # http.client asks a socket for the file of its answer, and for nothing else.
        in_time: Any = _AnswerInTime(sock, answer_s)
        return HTTPResponse(in_time, **details)

    made.response_class = answer
    return made


class _SocketConnection(HTTPConnection):
    """A connection to a Unix socket, whatever host the URL names."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(**options)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._path)
        except OSError as error:
            self.close()
            raise NewConnectionError(
                self, f"Failed to connect to {self._path}: {error.strerror or error}"
            ) from error


class _AnswerInTime(io.RawIOBase):
    """The bytes of one answer. Reading raises AnswerTooLong once its time is over."""

    def __init__(self, sock: socket.socket, answer_s: float) -> None:
        self._sock = sock
        self._bytes = sock.makefile("rb", buffering=0)
        self._read_s = sock.gettimeout()
        self._answer_s = answer_s
        self._ends_s = time.monotonic() + answer_s

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._ends_s - time.monotonic()
        try:
            if left_s <= 0:
                raise TimeoutError
            # urllib3 sets its own time-out again before each request.
            self._sock.settimeout(left_s if self._read_s is None else min(self._read_s, left_s))
            return self._bytes.readinto(buffer)
        except TimeoutError as error:
            if time.monotonic() < self._ends_s:
                raise
            raise AnswerTooLong(f"the answer took longer than {self._answer_s:g} s") from error

    def close(self) -> None:
        self._bytes.close()
        super().close()
