# SPDX-License-Identifier: MIT
"""Redis behind Sentinel, by URL alone: `sentinel://:PASSWORD@a:26379/0?master_name=NAME;sentinel://b:26379;...`.

kombu takes the master's name and the sentinels' login as transport options only, and goes on with the bare next URL
when a sentinel is away: user, password, database and TLS of the first one are given to all.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis.backoff import NoBackoff
from redis.retry import Retry

SCHEME = "sentinel://"
# As Sentinel's own configuration file has it.
USUAL_MASTER = "mymaster"
OWN_OPTIONS = ("master_name", "sentinel_username", "sentinel_password")
TIMEOUT_S = 5


def connection(urls: str) -> tuple[str, dict[str, Any]]:
    """Return the URLs as kombu takes them and its transport options; any other broker's URLs as they are, and none.

    Any option that begins with `ssl_` asks for TLS, from the sentinels and from Redis.
    """
    if not urls.startswith(SCHEME):
        return urls, {}
    parts = [urlsplit(url) for url in urls.split(";")]
    options = dict(parse_qsl(parts[0].query))
    tls = {name: value for name, value in options.items() if name.startswith("ssl_")}
    if tls:
        tls.setdefault("ssl_cert_reqs", "required")
    login, at, _ = parts[0].netloc.rpartition("@")
    made = []
    for part in parts:
        own, own_at, place = part.netloc.rpartition("@")
        netloc = f"{own or login}{own_at or at}{place}"
        path = part.path.strip("/") or parts[0].path.strip("/")
        made.append(urlunsplit(("sentinel", netloc, path and f"/{path}", urlencode(tls), "")))
    # redis-py asks a sentinel that is away for up to 25 s before it asks the next one.
    sentinel: dict[str, Any] = {
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
    }
    for name in ("username", "password"):
        if value := options.get(f"sentinel_{name}"):
            sentinel[name] = value
    if tls:
        sentinel |= {"ssl": True, **tls}
    return ";".join(made), {
        "master_name": options.get("master_name", USUAL_MASTER),
        "sentinel_kwargs": sentinel,
    }
