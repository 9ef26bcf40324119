# SPDX-License-Identifier: MIT
"""Keeps an application listening on one address, in a thread of its own or in the caller's.

Stopping and starting again keeps the port, so a test can let a server go down and come back.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import StreamReader, StreamWriter

from tornado.netutil import bind_sockets

from agent.host.waiting import PAUSE_S, wait_until
from simulator.server import http1

_STOP_S = 10.0


class Listener:
    def __init__(self, application: http1.Application, *, address: str, port: int, idle_s: float) -> None:
        self.address = address
        self.port = port
        self._application = application
        self._idle_s = idle_s
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen in a background thread; returns once the port is open, raises OSError when it is taken."""
        self._ready.clear()
        self._failure = None
        self._thread = thread = threading.Thread(target=self.run, name="simulated-waldur", daemon=True)
        thread.start()
        wait_until(
            "the simulated Waldur",
            self._ready.is_set,
            ended=lambda: "" if thread.is_alive() else "has ended",
            pause=lambda: self._ready.wait(PAUSE_S),
        )
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        if self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread is not None:
            self._thread.join(_STOP_S)
        self._thread = self._loop = self._stopping = None

    def run(self) -> None:
        asyncio.run(self._listen())

    async def _listen(self) -> None:
        try:
            sockets = bind_sockets(self.port, self.address)
        except OSError as error:
            self._failure = error
            self._ready.set()
            return
        self.port = sockets[0].getsockname()[1]
        servers = [await asyncio.start_server(self._connected, sock=each) for each in sockets]
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stopping.wait()
        for server in servers:
            server.close()
        open_now = list(self._connections)
        for connection in open_now:
            connection.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        connection: asyncio.Task[None] = asyncio.create_task(
            http1.serve(self._application, reader, writer, idle_s=self._idle_s)
        )
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
