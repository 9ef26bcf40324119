# SPDX-License-Identifier: MIT
"""Handlers of the simulated API: run what is due, authenticate, parse, let the route's function reply or refuse."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from urllib.parse import urlencode

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
from simulator.server.faulty import Asked
from simulator.server.http import Request, http_date
from simulator.server.routes import Call, Reply, Route, arguments_in
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


class Api:
    """The routes that the age of a store serves; it is asked at each request, as a test may change it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ask(self, request: Request) -> Asked:
        # HEAD is GET without the body, on every list and detail.
        method = "GET" if request.method == "HEAD" else request.method
        is_known = False
        for route in _BY_AREA.get(request.path.split("/", 3)[2], ()):
            if (found := route.path.fullmatch(request.path)) and route.serves(self._store.age):
                if route.method == method:
                    return AskedRoute(self._store, request, method, route, arguments_in(found))
                is_known = True
        return AskedNothing(self._store, request, method_not_allowed(method) if is_known else missing_page())


class AskedApi(Asked):
    """Answered with the store locked; what falls due happens before, and what has no delay after."""

    def __init__(self, store: Store, request: Request) -> None:
        super().__init__(request)
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
                reply.headers["Date"] = http_date(int(self._store.clock.now().timestamp()))
        except ApiError as error:
            return Reply(status=error.status, body=error.body, headers=error.headers, is_page=error.is_page)
        return reply


class AskedNothing(AskedApi):
    """No route: 405 for the paths of other methods, 404 (a page) for the rest."""

    def __init__(self, store: Store, request: Request, refusal: ApiError) -> None:
        super().__init__(store, request)
        self._refusal = refusal

    def respond(self) -> Reply:
        raise self._refusal


class AskedRoute(AskedApi):
    def __init__(
        self, store: Store, request: Request, method: str, route: Route, arguments: dict[str, str]
    ) -> None:
        super().__init__(store, request)
        self._method = method
        self._route = route
        self._arguments = arguments
        self._path = self.endpoint
        if request.path.endswith("/"):
            self.endpoint = route.pattern

    def respond(self) -> Reply:
        request, route = self.request, self._route
        query = request.query()
        if not request.path.endswith("/"):
            # A known path without its last slash is sent there, whatever the method.
            location = f"{request.root_url}{request.path}/"
            location += f"?{urlencode(query, doseq=True)}" if query else ""
            raise ApiError(301, None, headers={"Location": location})
        user = _NO_USER
        if not route.is_public:
            token = query.get("x-auth-token", [""])[-1]
            user = access.authenticate(self._store, request.headers.get("authorization"), token)
        self.username = user.username or None
        if request.body.strip():
            try:
                self.sent = json.loads(request.body)
            except ValueError as error:
                raise bad_field("detail", f"JSON parse error - {error}") from error
        call = Call(
            store=self._store,
            method=self._method,
            path=self._path,
            query=query,
            body=self.sent,
            user=user,
            root_url=request.root_url,
            arguments=self._arguments,
            user_agent=request.headers.get("user-agent", ""),
            remote_ip=request.remote_ip,
        )
        if not route.keeps_dates:
            self._store.dates_checked_on = None
        return route.handler(call)


def _by_area() -> dict[str, list[Route]]:
    areas: dict[str, list[Route]] = {}
    for module in API_MODULES:
        for route in module.routes:
            areas.setdefault(route.area, []).append(route)
    return areas


_BY_AREA = _by_area()
