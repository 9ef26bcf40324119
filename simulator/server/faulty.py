# SPDX-License-Identifier: MIT
"""What the API and the token endpoint have in common: faults strike there, and every request is logged."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

from simulator.server.faults import Fault, FaultKind, Faults
from simulator.server.http import Ending, Later, Request, Response
from simulator.server.request_log import RequestEntry, RequestLog
from simulator.server.routes import Reply

_NO_ANSWER = 0
_ENDINGS = {FaultKind.TRUNCATE: Ending.HALF, FaultKind.RESET: Ending.RESET}


class Asked:
    """One request, and what is found out about it for the log; `answer` replies to it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        # The name of the request in the log.
        self.endpoint = request.path.removeprefix("/api/")
        self.username: str | None = None
        # The parsed body.
        self.sent: Any = None

    def answer(self) -> Reply:
        raise NotImplementedError


def answer_or_fail(asked: Asked, faults: Faults, log: RequestLog) -> Response | Later:
    """Answer, unless a fault strikes."""
    started_s = time.perf_counter()
    fault = faults.strike(asked.request.method, asked.request.path)
    answer = partial(_answer, asked, fault, log, started_s)
    if fault is not None and fault.latency_ms:
        return Later(after_s=fault.latency_ms / 1000, respond=answer)
    return answer()


def _answer(asked: Asked, fault: Fault | None, log: RequestLog, started_s: float) -> Response:
    request = asked.request
    is_lost = fault is not None and fault.loses_request
    response = Response(status=_NO_ANSWER) if is_lost else _response_of(asked.answer())
    status = response.status
    if fault is not None:
        if fault.kind is FaultKind.ANSWER:
            response, status = _faulty_answer(fault), fault.status
        elif fault.kind is not FaultKind.DELAY:
            response.ending, status = _ENDINGS[fault.kind], _NO_ANSWER
    log.add(
        RequestEntry(
            method=request.method,
            endpoint=asked.endpoint,
            path=request.target,
            status=status,
            username=asked.username,
            user_agent=request.headers.get("user-agent", ""),
            body=asked.sent,
            duration_ms=(time.perf_counter() - started_s) * 1000,
        )
    )
    return response


def json_response(status: int, body: Any) -> Response:
    return Response(
        status=status, headers={"Content-Type": "application/json"}, content=json.dumps(body).encode()
    )


def _response_of(reply: Reply) -> Response:
    if reply.body is None:
        response = Response(status=reply.status)
    elif reply.is_page:
        headers = {"Content-Type": "text/html; charset=utf-8"}
        response = Response(status=reply.status, headers=headers, content=str(reply.body).encode())
    else:
        response = json_response(reply.status, reply.body)
    response.headers |= reply.headers
    return response


def _faulty_answer(fault: Fault) -> Response:
    headers = {"Content-Type": fault.content_type}
    if fault.retry_after_s is not None:
        headers["Retry-After"] = str(fault.retry_after_s)
    return Response(status=fault.status, headers=headers, content=fault.body.encode())
