# SPDX-License-Identifier: MIT
"""What the HTTP client takes from requests, urllib3 and http.client without being offered it. A release that moves it
fails here.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from agent.http.connections import Adapter


@pytest.mark.parametrize("pool", [HTTPConnectionPool, HTTPSConnectionPool])
def test_a_pool_makes_its_connections_by_this_name(pool: type[HTTPConnectionPool]) -> None:
    """agent.http.connections: `ConnectionCls`."""
    assert issubclass(pool.ConnectionCls, HTTPConnection)
    assert "ConnectionCls" in pool._new_conn.__code__.co_names


@pytest.mark.parametrize("reader", [http.client.HTTPConnection.getresponse, HTTPConnection._tunnel])
def test_a_connection_makes_its_answers_by_this_name(reader: Callable[..., Any]) -> None:
    """agent.http.connections: `response_class`; of a proxy's tunnel, too."""
    assert http.client.HTTPConnection.response_class is http.client.HTTPResponse
    assert "response_class" in reader.__code__.co_names


def test_requests_asks_its_adapter_for_a_pool() -> None:
    """agent.http.connections: `get_connection_with_tls_context`."""
    assert "get_connection_with_tls_context" in HTTPAdapter.send.__code__.co_names


@pytest.mark.parametrize("proxies", [{}, {"https": "http://127.0.0.1:1"}], ids=["direct", "proxy"])
def test_every_pool_has_connections_of_ours(proxies: dict[str, str]) -> None:
    prepared = requests.Request("GET", "https://waldur.example/").prepare()
    pool = Adapter(answer_s=1).get_connection_with_tls_context(prepared, verify=True, proxies=proxies)
    made = pool._new_conn()
    assert made.response_class is not http.client.HTTPResponse
    assert isinstance(made, HTTPConnection)
