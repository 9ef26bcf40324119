# SPDX-License-Identifier: MIT
"""Keeps a site listening on one address, in a thread of its own or in the caller's.

Stopping and starting again keeps the port, so a test can let a server go down and come back.
"""

from __future__ import annotations

import asyncio
import threading

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from agent.host.waiting import PAUSE_S, wait_until
from simulator.server.http import Site

_STOP_S = 600.0


class Listener:
    def __init__(self, site: Site, *, address: str, port: int, idle_s: float) -> None:
        self.address = address
        self.port = port
        self._site = site
        self._idle_s = idle_s
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

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
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = HTTPServer(self._site, idle_connection_timeout=self._idle_s)
        server.add_sockets(sockets)
        self._ready.set()
        await self._stopping.wait()
        server.stop()
        await server.close_all_connections()
