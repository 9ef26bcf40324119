# SPDX-License-Identifier: MIT
"""A token endpoint for the client_credentials grant; its access tokens work as Bearer tokens in the API."""

from __future__ import annotations

import base64
import binascii
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

from simulator.server.faulty import Asked
from simulator.server.http import Request
from simulator.server.routes import Reply
from simulator.world.records import Token
from simulator.world.store import Store


class AskedToken(Asked):
    def __init__(self, store: Store, request: Request) -> None:
        super().__init__(request)
        self.endpoint = "oidc/token/"
        self._store = store

    def answer(self) -> Reply:
        status, body = self._grant_token()
        return Reply(status=status, body=body)

    def _grant_token(self) -> tuple[int, dict[str, Any]]:
        store = self._store
        values = {name: texts[-1] for name, texts in parse_qs(self.request.body.decode()).items()}
        if values.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        client_id, secret = _basic_auth(self.request.headers.get("authorization")) or (
            values.get("client_id", ""),
            values.get("client_secret", ""),
        )
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
        return 200, {
            "access_token": token.key,
            "token_type": "Bearer",
            "expires_in": lifetime_s,
            "scope": "openid",
        }


def _basic_auth(header: str | None) -> tuple[str, str] | None:
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return client_id, secret
