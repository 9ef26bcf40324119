# SPDX-License-Identifier: MIT
"""A token endpoint for the client_credentials grant; its access tokens work as Bearer tokens in the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

from simulator.world.records import Token
from simulator.world.store import Store


def grant_token(store: Store, form: bytes, basic_auth: tuple[str, str] | None) -> tuple[int, dict[str, Any]]:
    """Status and JSON body of a POST to the token endpoint."""
    values = {name: texts[-1] for name, texts in parse_qs(form.decode()).items()}
    if values.get("grant_type") != "client_credentials":
        return 400, {"error": "unsupported_grant_type"}
    client_id, secret = basic_auth or (values.get("client_id", ""), values.get("client_secret", ""))
    with store.lock:
        known_secret, username = store.oidc_clients.get(client_id, (None, ""))
        if known_secret is None or known_secret != secret:
            return 401, {"error": "invalid_client"}
        user = store.users.where("username", username)[0]
        lifetime_s = store.settings.oidc_expires_in_s
        token = Token(
            key=f"oidc-{store.uuids.new()}",
            user_uuid=user.uuid,
            scheme="Bearer",
            expires_at=store.clock.now() + timedelta(seconds=lifetime_s),
        )
        store.tokens[token.key] = token
    body = {"access_token": token.key, "token_type": "Bearer", "expires_in": lifetime_s, "scope": "openid"}
    return 200, body
