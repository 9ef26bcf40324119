# SPDX-License-Identifier: MIT
"""The way to a broker through `global_proxy`: an HTTP proxy (CONNECT) or SOCKS, which resolves the broker's name.

A proxy that is spoken to over TLS (`https://`) is for requests only: the configuration warns of it, and brokers are
reached directly. What the environment says of proxies is for requests, too.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import socks  # type: ignore[import-untyped]

from agent.bridge import tls
from agent.bridge.connection import CONNECT_TIMEOUT_S, ConnectionFailed
from agent.bridge.model import Address

# Type, whether the proxy resolves names, and its usual port.
PROXY_TYPES = {
    "http": (socks.HTTP, True, 80),
    "socks4": (socks.SOCKS4, False, 1080),
    "socks4a": (socks.SOCKS4, True, 1080),
    "socks5": (socks.SOCKS5, True, 1080),
    "socks5h": (socks.SOCKS5, True, 1080),
}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy as PySocks wants it."""

    kind: int
    host: str
    port: int
    resolves: bool
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def arguments(self) -> dict[str, Any]:
        return {
            "proxy_type": self.kind,
            "proxy_addr": self.host,
            "proxy_port": self.port,
            "proxy_rdns": self.resolves,
            "proxy_username": self.user,
            "proxy_password": self.password,
        }


def proxy_of(address: Address) -> Proxy | None:
    """Return the proxy on the way to a broker; None where it is reached directly. Raises ConnectionFailed."""
    url = address.proxy.reveal()
    if not url:
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConnectionFailed("global_proxy is not a URL") from None
    if parts.scheme not in PROXY_TYPES or not host:
        return None
    kind, resolves, usual = PROXY_TYPES[parts.scheme]
    user, password = (unquote(text) if text else None for text in (parts.username, parts.password))
    return Proxy(kind, host, port or usual, resolves, user, password)


def connected(address: Address, proxy: Proxy) -> socket.socket:
    """Return a socket to the broker through the proxy, with TLS where the broker has it.

    Raises OSError, also for what the proxy refuses, and ConnectionFailed.
    """
    made: socket.socket = socks.create_connection(
        (address.host, address.port), CONNECT_TIMEOUT_S, **proxy.arguments()
    )
    if not address.tls:
        return made
    try:
        return tls.context(address).wrap_socket(made, server_hostname=address.host)
    except BaseException:
        made.close()
        raise
