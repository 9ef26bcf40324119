# SPDX-License-Identifier: MIT
"""Takes one API request through the server: route, authenticate, settle what is due, handle, refuse.

Knows nothing of sockets; the HTTP side hands it a parsed request and writes the Reply it returns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from simulator.api import (
    agents,
    consumer,
    events,
    imports,
    offering_users,
    offerings,
    orders,
    policies,
    providers,
    resources,
    session,
    slurm_remote,
    usage,
)
from simulator.api.paging import Query
from simulator.rules import access, processor
from simulator.rules.errors import ApiError, bad_field
from simulator.server.routes import Call, Reply, Route, Routes
from simulator.world.records import User
from simulator.world.store import Store

API_MODULES = (
    session,
    offerings,
    providers,
    orders,
    consumer,
    resources,
    offering_users,
    usage,
    agents,
    events,
    imports,
    policies,
    slurm_remote,
)
_NOBODY = User(
    uuid="",
    username="",
    first_name="",
    last_name="",
    email="",
    slug="",
    created=datetime.fromtimestamp(0, UTC),
)


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    path: str
    query: Query
    body: bytes
    root_url: str
    headers: dict[str, str] = field(default_factory=dict)
    remote_ip: str = "127.0.0.1"


@dataclass(kw_only=True)
class Outcome:
    """The reply with what the request log wants to know about it."""

    reply: Reply
    endpoint: str
    username: str | None = None
    body: Any = None
    is_page: bool = False


class Dispatcher:
    def __init__(self, store: Store, more_routes: Iterable[Routes] = ()) -> None:
        self._store = store
        self._routes = Routes()
        self._routes.include([module.routes for module in API_MODULES])
        self._routes.include(more_routes)

    def answer(self, request: Request) -> Outcome:
        outcome = Outcome(reply=Reply(), endpoint=request.path)
        try:
            with self._store.lock:
                processor.settle(self._store)
                outcome.reply = self._handle(request, outcome)
                processor.settle(self._store)
                self._store.changed()
        except ApiError as error:
            outcome.reply = Reply(status=error.status, body=error.body, headers=error.headers)
            outcome.is_page = error.is_page
        return outcome

    def endpoint(self, method: str, path: str) -> str:
        """The pattern of the route that a request belongs to; its path when there is none."""
        try:
            return self._routes.find(method, path, self._store.age)[0].pattern
        except ApiError:
            return path

    def _handle(self, request: Request, outcome: Outcome) -> Reply:
        # HEAD is GET without the body, on every list and detail.
        method = "GET" if request.method == "HEAD" else request.method
        self._redirect(method, request)
        route, arguments = self._routes.find(method, request.path, self._store.age)
        outcome.endpoint = route.pattern
        user = self._user(request, route)
        outcome.username = user.username or None
        outcome.body = _parse(request)
        call = Call(
            store=self._store,
            method=method,
            path=request.path,
            query=request.query,
            body=outcome.body,
            user=user,
            root_url=request.root_url,
            arguments=arguments,
            user_agent=request.headers.get("User-Agent", ""),
            remote_ip=request.remote_ip,
        )
        return route.handler(call)

    def _redirect(self, method: str, request: Request) -> None:
        """A known path without its last slash is sent there, whatever the method."""
        if not request.path.endswith("/"):
            self._routes.find(method, f"{request.path}/", self._store.age)
            query = f"?{urlencode(request.query, doseq=True)}" if request.query else ""
            location = f"{request.root_url}/api/{request.path}/{query}"
            raise ApiError(301, None, headers={"Location": location})

    def _user(self, request: Request, route: Route) -> User:
        if route.is_public:
            return _NOBODY
        query_token = request.query.get("x-auth-token", [""])[-1]
        return access.authenticate(self._store, request.headers.get("Authorization"), query_token)


def _parse(request: Request) -> Any:
    if not request.body.strip():
        return None
    try:
        return json.loads(request.body)
    except ValueError as error:
        raise bad_field("detail", f"JSON parse error - {error}") from error
