# SPDX-License-Identifier: MIT
"""The official SDK driven against a simulated server, with request bodies given as plain JSON."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from simulator.server.waldur import SimulatedWaldur

_MODELS = "waldur_api_client.models"


@contextmanager
def light_models() -> Iterator[None]:
    """Import the SDK's models one by one as they are used.

    Their package imports all three thousand of them, which takes seven seconds; the modules are the same.
    """
    if _MODELS in sys.modules:
        yield
        return
    import waldur_api_client  # as below, not where tests are only collected

    package = types.ModuleType(_MODELS)
    package.__path__ = [f"{waldur_api_client.__path__[0]}/models"]
    sys.modules[_MODELS] = package
    try:
        yield
    finally:
        del sys.modules[_MODELS]


class Sdk:
    def __init__(self, waldur: SimulatedWaldur, username: str = "agent", *, prefix: str = "Token") -> None:
        import waldur_api_client

        self._client = waldur_api_client.AuthenticatedClient(
            base_url=waldur.root_url,
            token=waldur.token(username),
            prefix=prefix,
            headers={"User-Agent": "waldur-site-agent-sdk/1"},
        )

    def __call__(self, endpoint: str, *uuids: str, body: Any = None, **query: Any) -> Any:
        """Call `area/name` and return what the SDK parsed; it raises on a status it does not know."""
        return self.detailed(endpoint, *uuids, body=body, **query).parsed

    def detailed(self, endpoint: str, *uuids: str, body: Any = None, **query: Any) -> Any:
        function = _module(endpoint).sync_detailed
        if body is not None:
            query["body"] = _request_body(function, body)
        query = _listed(function, query)
        return function(*[UUID(uuid) for uuid in uuids], client=self._client, **query)

    def all(self, endpoint: str, *uuids: str, **query: Any) -> list[Any]:
        """Every page of a list."""
        function = _module(endpoint).sync_all
        rows: list[Any] = function(
            *[UUID(uuid) for uuid in uuids], client=self._client, **_listed(function, query)
        )
        return rows


def _module(endpoint: str) -> Any:
    area, name = endpoint.split("/")
    return importlib.import_module(f"waldur_api_client.api.{area}.{area}_{name}")


def _listed(function: Any, query: dict[str, Any]) -> dict[str, Any]:
    """Parameters that this SDK takes as lists of uuids, as a list of one."""
    parameters = inspect.signature(function).parameters
    return {
        name: [value] if isinstance(value, str) and "list[uuid" in str(parameters[name].annotation) else value
        for name, value in query.items()
    }


def _request_body(function: Any, body: Any) -> Any:
    model = inspect.signature(function).parameters["body"].annotation
    if isinstance(body, list):
        item = importlib.import_module("waldur_api_client.models.site_agent_log_create_request")
        return [item.SiteAgentLogCreateRequest.from_dict(one) for one in body]
    return model.from_dict(body)
