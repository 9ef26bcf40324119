# SPDX-License-Identifier: MIT
"""One user of a simulated server, over plain HTTP."""

from __future__ import annotations

from typing import Any

import requests

from simulator.server.waldur import SimulatedWaldur


class Caller:
    def __init__(self, waldur: SimulatedWaldur, username: str | None, *, user_agent: str = "tests") -> None:
        self._url = waldur.url
        self._session = requests.Session()
        self._session.headers["User-Agent"] = user_agent
        if username is not None:
            self._session.headers["Authorization"] = f"Token {waldur.token(username)}"

    def get(self, path: str, **query: Any) -> requests.Response:
        return self._session.get(self._url + path, params=query, timeout=600, allow_redirects=False)

    def post(self, path: str, body: Any = None) -> requests.Response:
        return self.send("POST", path, body)

    def send(self, method: str, path: str, body: Any = None) -> requests.Response:
        return self._session.request(method, self._url + path, json=body, timeout=600)

    def order(self, uuid: str) -> Any:
        return self.read(f"marketplace-orders/{uuid}/")

    def resource(self, uuid: str) -> Any:
        return self.read(f"marketplace-provider-resources/{uuid}/")

    def move(self, order_uuid: str, action: str, body: Any = None) -> int:
        """The status of a POST to one of the order's actions."""
        return self.post(f"marketplace-orders/{order_uuid}/{action}/", body).status_code

    def read(self, path: str, **query: Any) -> Any:
        answer = self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()
