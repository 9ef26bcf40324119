# SPDX-License-Identifier: MIT
"""Routes of the simulated API: a method, a path pattern and the ages that serve it, each with one function.

The modules of `simulator.api` declare them; `server.api_handlers` finds the one for a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from simulator.api.paging import Query
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
    """Status and body."""

    status: int = 200
    # JSON, or an HTML page; None is an empty one.
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    is_page: bool = False


Handler = Callable[[Call], Reply]


@dataclass(frozen=True, kw_only=True)
class Route:
    """Requests of one method and pattern, with what answers them."""

    method: str
    pattern: str
    # Matches the pattern with or without its last slash.
    path: re.Pattern[str]
    handler: Handler
    since: Age
    until: Age
    is_public: bool
    # It changes no date and no state of orders, resources and projects.
    keeps_dates: bool

    @property
    def area(self) -> str:
        """The beginning of the path, such as `projects`."""
        return self.pattern.partition("/")[0]

    def serves(self, age: Age) -> bool:
        return age.at_least(self.since) and self.until.at_least(age)


class Routes(list[Route]):
    """Routes of one module of the API."""

    def on(
        self,
        method: str,
        pattern: str,
        *,
        since: Age = Age.A2024,
        until: Age = Age.V8_1,
        is_public: bool = False,
        keeps_dates: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Register a handler for `method` on `pattern`, such as `projects/{uuid}/`."""

        def register(handler: Handler) -> Handler:
            route = Route(
                method=method,
                pattern=pattern,
                path=path_matcher(f"/api/{pattern}"),
                handler=handler,
                since=since,
                until=until,
                is_public=is_public,
                keeps_dates=keeps_dates or method == "GET",
            )
            self.append(route)
            return handler

        return register


def path_matcher(pattern: str) -> re.Pattern[str]:
    """Match a path such as `/api/projects/{uuid}/`, with or without its last slash."""
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern.rstrip("/")) + "/?")


def arguments_in(found: re.Match[str]) -> dict[str, str]:
    return {name: unquote(value) for name, value in found.groupdict().items()}
