# SPDX-License-Identifier: MIT
"""Which addresses lead over a network without TLS: whoever listens there reads the secrets that are sent."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

# With a password for the broker in them.
BROKER_SCHEMES = ("redis", "sentinel", "amqp", "pyamqp")


def leads_away(url: str, *schemes: str) -> bool:
    """Return whether the URL is one of these schemes without TLS, and not of this machine."""
    try:
        parts = urlsplit(url)
        return parts.scheme in schemes and crosses_network(parts.hostname or "")
    except ValueError:
        return False


def crosses_network(host: str) -> bool:
    """Return whether what is sent to a host leaves this machine; an empty one is a local socket."""
    name = host.rstrip(".").lower()
    if name in ("", "localhost") or name.endswith(".localhost"):
        return False
    try:
        return not ip_address(name).is_loopback
    except ValueError:
        return True
