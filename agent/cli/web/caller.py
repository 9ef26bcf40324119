# SPDX-License-Identifier: MIT
"""Who is at the other end of a request, and whether others can listen on the way there. Of what a proxy says only that
of one that the settings name is believed.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from tornado.httputil import HTTPServerRequest

from agent.config.field_types import IpNetwork

# Whoever has an IPv6 address has all of its network.
BITS_OF_ONE = 64


@dataclass(frozen=True, slots=True)
class Caller:
    """The other end of a request."""

    address: str
    # The browser speaks TLS, to us or to a proxy that is named.
    is_encrypted: bool
    # Without a proxy, from this host.
    is_local: bool
    # Of this host, where the kernel says so.
    uid: int | None = None

    def __str__(self) -> str:
        return self.address if self.uid is None else f"{self.address}, user {self.uid} of this host"

    @property
    def origin(self) -> str:
        """Return what is one for all that a person can call from."""
        found = ip_address(self.address)
        if isinstance(found, IPv6Address) and not found.is_loopback:
            return str(int(found) >> BITS_OF_ONE)
        return self.address if self.uid is None else f"user {self.uid}"


def caller_of(request: HTTPServerRequest, proxies: Collection[IpNetwork]) -> Caller:
    """Return who sent a request. Behind proxies that are named it is the last other address of X-Forwarded-For. A named
    one on loopback that sends none is not local: whoever it is for may be anywhere.
    """
    peer = str(_address(str(request.remote_ip)))
    forwarded = [each.strip() for each in request.headers.get("X-Forwarded-For", "").split(",")]
    is_proxy = _is_named(peer, proxies)
    if not is_proxy or forwarded == [""]:
        is_local = ip_address(peer).is_loopback and not is_proxy
        return Caller(peer, request.protocol == "https", is_local)
    address = peer
    for each in reversed(forwarded):
        try:
            address = str(_address(each))
        except ValueError:
            break
        if not _is_named(address, proxies):
            break
    return Caller(address, request.headers.get("X-Forwarded-Proto", "").lower() == "https", is_local=False)


def _address(text: str) -> IPv4Address | IPv6Address:
    """Return an address; one of IPv4 that is written as one of IPv6 (`::ffff:192.0.2.7`) is that of IPv4. Raises
    ValueError.
    """
    found = ip_address(text)
    return (found.ipv4_mapped if isinstance(found, IPv6Address) else None) or found


def _is_named(address: str, proxies: Collection[IpNetwork]) -> bool:
    return any(ip_address(address) in network for network in proxies)


def local_user(caller: Caller, connection: socket.socket) -> Caller:
    """Return the caller with the user of this host who has the other end of the connection: for ssh's forwarding, whom
    ssh let in.
    """
    version = "6" if connection.family == socket.AF_INET6 else ""
    try:
        wanted = [_as_proc_has_it(*name[:2]) for name in (connection.getpeername(), connection.getsockname())]
        lines = Path(f"/proc/net/tcp{version}").read_text(encoding="ascii").splitlines()
    except OSError:
        return caller
    # The number, local and remote address, state, queues, timers, retransmissions, uid.
    found = (line.split() for line in lines)
    return replace(caller, uid=next((int(each[7]) for each in found if each[1:3] == wanted), None))


def _as_proc_has_it(address: str, port: int) -> str:
    packed = ip_address(address).packed
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
