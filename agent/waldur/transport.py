# SPDX-License-Identifier: MIT
"""Sessions for one way to Waldur: its proxy, its certificates, its bounds. `agent.http` has the connections.

What is configured comes before the environment; the environment's proxies and REQUESTS_CA_BUNDLE count where the
configuration says nothing.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from urllib3.exceptions import InsecureRequestWarning, LocationParseError
from urllib3.util import parse_url

from agent.config.model import WaldurAccess
from agent.config.secret import mask_url
from agent.core.errors import ConfigError
from agent.http import connections
from agent.http.connections import Adapter, LoggedRetry, RequestCounter, Session

PROXY_SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")


@dataclass(frozen=True, slots=True)
class Bounds(connections.Bounds):
    """How much is taken from Waldur: of one answer, and of a listing's pages together."""

    listing_s: float = 900.0
    listing_bytes: int = 512 * 2**20
    listing_values: int = 10_000_000
    listing_pages: int = 5000


def new_session(access: WaldurAccess, sent: RequestCounter, retry: LoggedRetry, bounds: Bounds) -> Session:
    """Return a session for this way to Waldur. Raises ConfigError for a proxy that cannot be one."""
    made = Session()
    adapter = Adapter(sent, bounds, max_retries=retry, pool_maxsize=connections.POOL_SIZE)
    made.mount("http://", adapter)
    made.mount("https://", adapter)
    made.verify = (access.ca_file or True) if access.verify_ssl else False
    if not access.verify_ssl:
        # The configuration warns of it once, not with every connection.
        warnings.simplefilter("ignore", InsecureRequestWarning)
    if access.proxy:
        proxy = _usable_proxy(access.proxy)
        made.proxies = {"http": proxy, "https": proxy}
    return made


def _usable_proxy(proxy: str) -> str:
    """Return the proxy. Raises ConfigError: the libraries' own errors would show its password."""
    try:
        place = parse_url(proxy)
    except LocationParseError:
        raise ConfigError(f"global_proxy {mask_url(proxy)} is not a URL") from None
    scheme = (place.scheme or "http").lower()
    if not place.host or scheme not in PROXY_SCHEMES:
        schemes = ", ".join(PROXY_SCHEMES)
        raise ConfigError(
            f"global_proxy {mask_url(proxy)} is not a proxy's URL; it begins with one of {schemes}"
        )
    return proxy
