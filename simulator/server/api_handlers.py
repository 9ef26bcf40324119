# SPDX-License-Identifier: MIT
"""Handlers of the simulated API: run what is due, authenticate, parse, let the route's function reply or refuse."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qs, urlencode

from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, PathMatches, Rule

from simulator.api import (
    agents,
    consumer,
    events,
    imports,
    keys,
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
from simulator.rules import access, processor
from simulator.rules.errors import ApiError, bad_field, method_not_allowed, missing_page
from simulator.server.faults import Faults
from simulator.server.handler import FaultyHandler
from simulator.server.request_log import RequestLog
from simulator.server.routes import Call, MethodAndPath, Reply, Route, method_of
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
    keys,
    policies,
    slurm_remote,
)
_NO_USER = User(
    uuid="",
    username="",
    first_name="",
    last_name="",
    email="",
    slug="",
    created=datetime.fromtimestamp(0, UTC),
)


def api_rules(store: Store, faults: Faults, log: RequestLog) -> list[Rule]:
    """Return tornado's rules: every route, found by its area, then 405 for the paths among them, then 404 (a page) for
    the rest.

    The age is asked at each request: a test may change it while the server runs.
    """
    common = {"store": store, "faults": faults, "log": log}
    routes = [route for module in API_MODULES for route in module.routes]
    areas: dict[str, list[Rule]] = {}
    for route in routes:
        rule = Rule(_ServedRoute(store, route), EndpointHandler, {**common, "route": route})
        areas.setdefault(route.area, []).append(rule)
    return [
        *(Rule(PathMatches(f"/api/{area}(?:/.*)?"), rules) for area, rules in areas.items()),
        Rule(_KnownPath(store, routes), WrongMethodHandler, common),
        Rule(PathMatches(r"/api/.*"), UnknownPathHandler, common),
    ]


class ApiHandler(FaultyHandler):
    """Answer with the store locked; what falls due happens before, and what has no delay after."""

    def initialize(self, store: Store, faults: Faults, log: RequestLog) -> None:  # type: ignore[override]
        super().initialize(faults, log)
        self._store = store

    def respond(self) -> Reply:
        """Return the reply or raise ApiError."""
        raise NotImplementedError

    def answer(self) -> Reply:
        try:
            with self._store.lock:
                processor.catch_up(self._store)
                reply = self.respond()
                processor.run_due(self._store)
                self._store.changed()
                self.set_header("Date", format_datetime(self._store.clock.now().astimezone(UTC), usegmt=True))
        except ApiError as error:
            return Reply(status=error.status, body=error.body, headers=error.headers, is_page=error.is_page)
        return reply

    get = head = post = put = patch = delete = options = FaultyHandler.handle


class WrongMethodHandler(ApiHandler):
    def respond(self) -> Reply:
        raise method_not_allowed(method_of(self.request))


class UnknownPathHandler(ApiHandler):
    def respond(self) -> Reply:
        raise missing_page()


class EndpointHandler(ApiHandler):
    def initialize(self, route: Route, **common: Any) -> None:  # type: ignore[override]
        super().initialize(**common)
        self._route = route

    @property
    def endpoint(self) -> str:
        return self._route.pattern if self.request.path.endswith("/") else super().endpoint

    def respond(self) -> Reply:
        request, route = self.request, self._route
        query = parse_qs(request.query, keep_blank_values=True)
        root_url = f"{request.protocol}://{request.host}"
        if not request.path.endswith("/"):
            # A known path without its last slash is sent there, whatever the method.
            location = f"{root_url}{request.path}/"
            location += f"?{urlencode(query, doseq=True)}" if query else ""
            raise ApiError(301, None, headers={"Location": location})
        user = _NO_USER
        if not route.is_public:
            token = query.get("x-auth-token", [""])[-1]
            user = access.authenticate(self._store, request.headers.get("Authorization"), token)
        self.username = user.username or None
        if request.body.strip():
            try:
                self.sent = json.loads(request.body)
            except ValueError as error:
                raise bad_field("detail", f"JSON parse error - {error}") from error
        call = Call(
            store=self._store,
            method=method_of(request),
            path=super().endpoint,
            query=query,
            body=self.sent,
            user=user,
            root_url=root_url,
            arguments=self.path_kwargs,
            user_agent=request.headers.get("User-Agent", ""),
            remote_ip=request.remote_ip or "",
        )
        if not route.keeps_dates:
            self._store.dates_checked_on = None
        return route.handler(call)


class _ServedRoute(MethodAndPath):
    def __init__(self, store: Store, route: Route) -> None:
        super().__init__(route.method, route.path, lambda: route.serves(store.age))


class _KnownPath(Matcher):
    """Match the paths that this age serves with another method."""

    def __init__(self, store: Store, routes: list[Route]) -> None:
        self._store = store
        self._routes = routes

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        is_known = any(
            route.serves(self._store.age) and route.path.match(request) is not None for route in self._routes
        )
        return {} if is_known else None
