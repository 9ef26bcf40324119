# SPDX-License-Identifier: MIT
"""The table of endpoints: method, path pattern and the ages that serve it, each with one handler.

API modules fill a `Routes`; the dispatcher asks it which handler a request belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from simulator.api.paging import Query
from simulator.rules.errors import method_not_allowed, missing_page
from simulator.world.ages import Age
from simulator.world.identifiers import as_uuid
from simulator.world.records import User
from simulator.world.store import Store


@dataclass(kw_only=True)
class Call:
    """One request, as a handler sees it: authenticated, parsed, with the store locked."""

    store: Store
    method: str
    path: str
    query: Query
    body: Any
    user: User
    root_url: str
    arguments: dict[str, str] = field(default_factory=dict)
    user_agent: str = ""
    remote_ip: str = "127.0.0.1"

    @property
    def age(self) -> Age:
        return self.store.age

    @property
    def uuid(self) -> str | None:
        """The object named in the path, in 32-hex form; None when it is no uuid."""
        return as_uuid(self.arguments.get("uuid"))

    def field(self, name: str) -> Any:
        return self.body.get(name) if isinstance(self.body, dict) else None

    def text(self, name: str) -> str:
        value = self.field(name)
        return value if isinstance(value, str) else ""


@dataclass(kw_only=True)
class Reply:
    """Status and body; None as a body means an empty one."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Call], Reply]


@dataclass(frozen=True, kw_only=True)
class Route:
    method: str
    pattern: str
    handler: Handler
    since: Age
    until: Age
    is_public: bool

    def serves(self, age: Age) -> bool:
        return age.at_least(self.since) and self.until.at_least(age)


class Routes:
    def __init__(self) -> None:
        self._routes: list[tuple[re.Pattern[str], Route]] = []

    def on(
        self,
        method: str,
        pattern: str,
        *,
        since: Age = Age.A2024,
        until: Age = Age.V8_1,
        is_public: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Register a handler for `method` on `pattern`, such as `projects/{uuid}/`."""

        def register(handler: Handler) -> Handler:
            self.add(
                Route(
                    method=method,
                    pattern=pattern,
                    handler=handler,
                    since=since,
                    until=until,
                    is_public=is_public,
                )
            )
            return handler

        return register

    def add(self, route: Route) -> None:
        expression = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route.pattern)
        self._routes.append((re.compile(expression), route))

    def include(self, others: Iterable[Routes]) -> None:
        for other in others:
            self._routes.extend(other._routes)

    def find(self, method: str, path: str, age: Age) -> tuple[Route, dict[str, str]]:
        """The route and its path arguments; 404 (a page) for unknown paths, 405 for a known one."""
        is_known = False
        for expression, route in self._routes:
            match = expression.fullmatch(path)
            if match is None or not route.serves(age):
                continue
            if route.method == method:
                return route, match.groupdict()
            is_known = True
        raise method_not_allowed(method) if is_known else missing_page()
