# SPDX-License-Identifier: MIT
"""Serve metrics to Prometheus over HTTP. Only the process that is asked for it imports this: no process of a pool."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import CollectorRegistry

from agent.observability.metrics import SiteCollector

# A client that sends nothing is disconnected.
SILENT_S = 10.0
Health = Callable[[], tuple[bool, str]]


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = SILENT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: Prometheus asks every few seconds."""


class Endpoint:
    """`/metrics`, and `/healthz` where there is a `health`. Raises OSError where the address cannot be listened to."""

    def __init__(
        self, collector: SiteCollector, address: tuple[str, int], *, health: Health | None = None
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)
        self._health = health
        host, port = address
        server = _ServerV6 if ":" in host else _Server
        self._server = make_server(host, port, self._answer, server_class=server, handler_class=_Handler)
        self.port = self._server.server_port
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def serve(self) -> None:
        """Answer until `close`."""
        self._server.serve_forever()

    def start(self) -> None:
        """Answer in a thread of its own."""
        threading.Thread(target=self.serve, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop answering. Not from the thread that serves."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path, kind, body, status = environ.get("PATH_INFO", ""), "text/plain; charset=utf-8", "", "200 OK"
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            status, body = "405 Method Not Allowed", "GET only\n"
        elif path == "/metrics":
            kind, body = CONTENT_TYPE_LATEST, generate_latest(self._registry).decode()
        elif path == "/healthz" and self._health is not None:
            is_well, body = self._health()
            status = "200 OK" if is_well else "503 Service Unavailable"
        else:
            status, body = "404 Not Found", "/metrics\n"
        answer = body.encode()
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(answer)))])
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else [answer]
