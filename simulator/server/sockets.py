# SPDX-License-Identifier: MIT
"""The sockets: tornado handlers that turn requests into calls, write replies, and let faults strike."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import json
import socket
import struct
import time
from collections.abc import Awaitable
from http.client import responses
from typing import Any
from urllib.parse import parse_qs

from tornado.web import Application, RequestHandler

from simulator.control import http
from simulator.control.http import Surface
from simulator.server import oidc
from simulator.server.dispatch import Dispatcher, Outcome, Request
from simulator.server.faults import Fault, FaultKind
from simulator.server.request_log import RequestEntry, RequestLog
from simulator.server.routes import Reply
from simulator.world.store import Store

_JSON = "application/json"
_NO_ANSWER = 0


def application(dispatcher: Dispatcher, surface: Surface, store: Store) -> Application:
    return Application(
        [
            (r"/api/(.*)", ApiHandler, {"surface": surface, "dispatcher": dispatcher}),
            (r"/oidc/(token)/?", OidcHandler, {"surface": surface, "store": store}),
            (r"/control/(.*?)/?", ControlHandler, {"surface": surface}),
        ],
        log_function=_log_nothing,
    )


class FaultyHandler(RequestHandler):
    """Answers, unless a fault strikes; either way the request is noted in the log."""

    def initialize(self, surface: Surface) -> None:
        self._faults = surface.faults
        self._request_log: RequestLog = surface.requests

    def outcome(self, path: str) -> Outcome:
        raise NotImplementedError

    def endpoint(self, path: str) -> str:
        """What the log calls a request that a fault has lost."""
        return path

    async def handle(self, path: str) -> None:
        started = time.perf_counter()
        fault = self._faults.strike(self.request.method or "", self.request.path)
        if fault is not None and fault.latency_ms:
            await asyncio.sleep(fault.latency_ms / 1000)
        if fault is not None and fault.loses_request:
            outcome = Outcome(reply=Reply(status=_NO_ANSWER), endpoint=self.endpoint(path))
        else:
            outcome = self.outcome(path)
        self._note(outcome, fault, (time.perf_counter() - started) * 1000)
        await self._answer(outcome, fault)

    def compute_etag(self) -> str | None:
        return None

    async def _answer(self, outcome: Outcome, fault: Fault | None) -> None:
        if fault is None or fault.kind is FaultKind.DELAY:
            _write_reply(self, outcome)
        elif fault.kind is FaultKind.ANSWER:
            _write_fault(self, fault)
        elif fault.kind is FaultKind.RESET:
            _reset(self)
        else:
            await _truncate(self, outcome)

    def _note(self, outcome: Outcome, fault: Fault | None, duration_ms: float) -> None:
        status = outcome.reply.status
        if fault is not None and fault.kind is not FaultKind.DELAY:
            status = fault.status if fault.kind is FaultKind.ANSWER else _NO_ANSWER
        self._request_log.add(
            RequestEntry(
                method=self.request.method or "",
                endpoint=outcome.endpoint,
                path=self.request.uri or "",
                status=status,
                username=outcome.username,
                user_agent=self.request.headers.get("User-Agent", ""),
                body=outcome.body,
                duration_ms=duration_ms,
            )
        )

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        raise NotImplementedError


class ApiHandler(FaultyHandler):
    def initialize(self, surface: Surface, dispatcher: Dispatcher) -> None:  # type: ignore[override]
        super().initialize(surface)
        self._dispatcher = dispatcher

    def outcome(self, path: str) -> Outcome:
        return self._dispatcher.answer(
            Request(
                method=self.request.method or "",
                path=path,
                query=parse_qs(self.request.query, keep_blank_values=True),
                body=self.request.body,
                root_url=f"{self.request.protocol}://{self.request.host}",
                headers=dict(self.request.headers.get_all()),
                remote_ip=self.request.remote_ip or "",
            )
        )

    def endpoint(self, path: str) -> str:
        return self._dispatcher.endpoint(self.request.method or "", path)

    get = head = post = put = patch = delete = options = FaultyHandler.handle


class OidcHandler(FaultyHandler):
    def initialize(self, surface: Surface, store: Store) -> None:  # type: ignore[override]
        super().initialize(surface)
        self._store = store

    def outcome(self, path: str) -> Outcome:
        basic = _basic_auth(self.request.headers.get("Authorization"))
        status, body = oidc.grant_token(self._store, self.request.body, basic)
        return Outcome(reply=Reply(status=status, body=body), endpoint=self.endpoint(path))

    def endpoint(self, path: str) -> str:
        return f"oidc/{path}/"

    post = FaultyHandler.handle


class ControlHandler(RequestHandler):
    def initialize(self, surface: Surface) -> None:
        self._surface = surface

    async def handle(self, path: str) -> None:
        remote_ip = self.request.remote_ip
        if remote_ip is None or not ipaddress.ip_address(remote_ip).is_loopback:
            _write_json(self, 403, {"detail": "The control surface is for this machine only."})
            return
        try:
            body = json.loads(self.request.body) if self.request.body.strip() else {}
        except ValueError as error:
            _write_json(self, 400, {"detail": str(error)})
            return
        query = {name: values[-1] for name, values in parse_qs(self.request.query).items()}
        status, answer = http.perform(self._surface, self.request.method or "", path, body=body, query=query)
        _write_json(self, status, answer)

    get = post = put = patch = delete = handle

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        raise NotImplementedError


def _log_nothing(_: RequestHandler) -> None:
    """The request log keeps what is worth knowing; tornado need not print it too."""


def _write_reply(handler: RequestHandler, outcome: Outcome) -> None:
    reply = outcome.reply
    handler.set_status(reply.status, responses.get(reply.status, "Unknown"))
    for name, value in reply.headers.items():
        handler.set_header(name, value)
    if reply.body is None:
        handler.clear_header("Content-Type")
        handler.finish()
        return
    handler.set_header("Content-Type", _content_type(outcome))
    handler.finish(_payload(outcome))


def _payload(outcome: Outcome) -> bytes:
    body = outcome.reply.body
    return str(body).encode() if outcome.is_page else json.dumps(body).encode()


def _content_type(outcome: Outcome) -> str:
    return "text/html; charset=utf-8" if outcome.is_page else _JSON


def _write_fault(handler: RequestHandler, fault: Fault) -> None:
    handler.set_status(fault.status, responses.get(fault.status, "Unknown"))
    handler.set_header("Content-Type", fault.content_type)
    if fault.retry_after_s is not None:
        handler.set_header("Retry-After", str(fault.retry_after_s))
    handler.finish(fault.body)


def _write_json(handler: RequestHandler, status: int, body: Any) -> None:
    handler.set_status(status, responses.get(status, "Unknown"))
    handler.set_header("Content-Type", _JSON)
    handler.finish(json.dumps(body))


def _reset(handler: RequestHandler) -> None:
    """Close with a reset: the client sees a broken connection, not an end of file."""
    stream = handler.detach()
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


async def _truncate(handler: RequestHandler, outcome: Outcome) -> None:
    """Promise the whole body and send half of it."""
    payload = _payload(outcome)
    reason = responses.get(outcome.reply.status, "Unknown")
    head = (
        f"HTTP/1.1 {outcome.reply.status} {reason}\r\nContent-Type: {_content_type(outcome)}\r\n"
        f"Content-Length: {len(payload)}\r\n\r\n"
    )
    stream = handler.detach()
    await stream.write(head.encode() + payload[: len(payload) // 2])
    stream.close()


def _basic_auth(header: str | None) -> tuple[str, str] | None:
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return client_id, secret
