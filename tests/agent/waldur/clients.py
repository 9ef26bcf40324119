# SPDX-License-Identifier: MIT
"""Ways to make a client: for a simulated server as an offering is configured, or for any address."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.config.model import OidcClient, WaldurAccess
from agent.config.secret import Secret
from agent.http.client import Timeouts
from agent.waldur.client import WaldurClient
from agent.waldur.listing import Bounds
from simulator.server.waldur import SimulatedWaldur

TOKEN = "9d1f0c2ab34e57687a8b9c0d1e2f3a4b5c6d7e8f"
OFFERING = "e21a0f0030b447deb63bedf69db6742e"
USER_AGENT = "waldur-site-agent-order_process/1.2.3"
QUICK = Timeouts(backoff_max_s=0.1)


def client_at(
    url: str,
    *,
    attempts: int = 1,
    timeouts: Timeouts = QUICK,
    bounds: Bounds = Bounds(),
    offering_uuid: str = OFFERING,
    user_agent: str = USER_AGENT,
    **access: Any,
) -> WaldurClient:
    """A client with TOKEN, unless `access` says otherwise (`token=None, oidc=...`, `proxy=...`)."""
    way = replace(WaldurAccess(url, token=Secret(TOKEN)), **access)
    return WaldurClient(
        way,
        user_agent=user_agent,
        offering_uuid=offering_uuid,
        attempts=attempts,
        timeouts=timeouts,
        bounds=bounds,
    )


def client_of(waldur: SimulatedWaldur, *, username: str = "agent", **options: Any) -> WaldurClient:
    """A client of the seeded offering, patient enough for a busy machine."""
    wanted = {
        "attempts": 4,
        "timeouts": QUICK,
        "offering_uuid": waldur.seed.offering_uuid,
        "token": Secret(waldur.token(username)),
        **options,
    }
    return client_at(waldur.url, **wanted)


def oidc(token_url: str, *, client_id: str = "agent", secret: str = "secret") -> dict[str, Any]:
    """The part of `access` that replaces the static token."""
    return {"token": None, "oidc": OidcClient(token_url, client_id, Secret(secret))}
