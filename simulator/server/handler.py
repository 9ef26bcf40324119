# SPDX-License-Identifier: MIT
"""The tornado handler under the API and the token endpoint: faults strike here, and every request is logged."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import Awaitable
from http.client import responses
from typing import Any

from tornado.web import RequestHandler

from simulator.server.faults import Fault, FaultKind, Faults
from simulator.server.request_log import RequestEntry, RequestLog
from simulator.server.routes import Reply

_JSON = "application/json"
_NO_ANSWER = 0


class FaultyHandler(RequestHandler):
    """Answer, unless a fault strikes."""

    # For the log, where known.
    username: str | None = None
    # The parsed body, for the log, where known.
    sent: Any = None

    def initialize(self, faults: Faults, log: RequestLog) -> None:
        self._faults = faults
        self._request_log = log

    @property
    def endpoint(self) -> str:
        """The name of the request in the log."""
        return self.request.path.removeprefix("/api/")

    def answer(self) -> Reply:
        raise NotImplementedError

    async def handle(self, **_: str) -> None:
        started_s = time.perf_counter()
        fault = self._faults.strike(self.request.method or "", self.request.path)
        if fault is not None and fault.latency_ms:
            await asyncio.sleep(fault.latency_ms / 1000)
        is_lost = fault is not None and fault.loses_request
        reply = Reply(status=_NO_ANSWER) if is_lost else self.answer()
        self._log_request(reply, fault, (time.perf_counter() - started_s) * 1000)
        if fault is None or fault.kind is FaultKind.DELAY:
            self._write_reply(reply)
        elif fault.kind is FaultKind.ANSWER:
            self._write_fault(fault)
        elif fault.kind is FaultKind.RESET:
            self._reset()
        else:
            await self._truncate(reply)

    def compute_etag(self) -> str | None:
        return None

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        raise NotImplementedError

    def _log_request(self, reply: Reply, fault: Fault | None, duration_ms: float) -> None:
        status = reply.status
        if fault is not None and fault.kind is not FaultKind.DELAY:
            status = fault.status if fault.kind is FaultKind.ANSWER else _NO_ANSWER
        self._request_log.add(
            RequestEntry(
                method=self.request.method or "",
                endpoint=self.endpoint,
                path=self.request.uri or "",
                status=status,
                username=self.username,
                user_agent=self.request.headers.get("User-Agent", ""),
                body=self.sent,
                duration_ms=duration_ms,
            )
        )

    def _write_reply(self, reply: Reply) -> None:
        self.set_status(reply.status, _reason(reply.status))
        for name, value in reply.headers.items():
            self.set_header(name, value)
        if reply.body is None:
            self.clear_header("Content-Type")
            self.finish()
            return
        self.set_header("Content-Type", _content_type(reply))
        self.finish(_payload(reply))

    def _write_fault(self, fault: Fault) -> None:
        self.set_status(fault.status, _reason(fault.status))
        self.set_header("Content-Type", fault.content_type)
        if fault.retry_after_s is not None:
            self.set_header("Retry-After", str(fault.retry_after_s))
        self.finish(fault.body)

    def _reset(self) -> None:
        """Close with a reset: the client sees a broken connection, not an end of file."""
        stream = self.detach()
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.close()

    async def _truncate(self, reply: Reply) -> None:
        """Promise the whole body and send half of it."""
        payload = _payload(reply)
        head = (
            f"HTTP/1.1 {reply.status} {_reason(reply.status)}\r\nContent-Type: {_content_type(reply)}\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n"
        )
        stream = self.detach()
        await stream.write(head.encode() + payload[: len(payload) // 2])
        stream.close()


def write_json(handler: RequestHandler, status: int, body: Any) -> None:
    handler.set_status(status, _reason(status))
    handler.set_header("Content-Type", _JSON)
    handler.finish(json.dumps(body))


def _reason(status: int) -> str:
    return responses.get(status, "Unknown")


def _payload(reply: Reply) -> bytes:
    return str(reply.body).encode() if reply.is_page else json.dumps(reply.body).encode()


def _content_type(reply: Reply) -> str:
    return "text/html; charset=utf-8" if reply.is_page else _JSON
