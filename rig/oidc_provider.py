# SPDX-License-Identifier: MIT
"""A provider of OpenID Connect: discovery, authorization code with PKCE, tokens signed with RS256, faults on demand.

Whoever comes is let in, as the person that `claims` describes. Tokens are made by hand, so that wrong ones are
as easy as right ones.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from tornado.escape import xhtml_escape
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from agent.host.waiting import GIVE_UP_S
from rig.processes import free_ports

CLIENT, SECRET = "console", "s3cret-of-the-client"


def new_key() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


@cache
def own_key() -> RSAPrivateKey:
    """Return the key of all providers of this process: to make one takes up to 0.1 s of processor time."""
    return new_key()


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def signed(claims: dict[str, Any], key: RSAPrivateKey, **header: Any) -> str:
    """Return a token with these claims and this header."""
    parts = [encoded(json.dumps(each).encode()) for each in ({"alg": "RS256", **header}, claims)]
    text = ".".join(parts)
    return f"{text}.{encoded(key.sign(text.encode(), PKCS1v15(), SHA256()))}"


@dataclass
class OidcProvider:
    """Started by `with`; on a name of loopback that is another site than 127.0.0.1."""

    # What is said of the person who comes.
    claims: dict[str, Any] = field(
        default_factory=lambda: {"preferred_username": "olga", "groups": ["hpc-admins"]}
    )
    key: RSAPrivateKey = field(default_factory=own_key)
    key_id: str = "one"
    # Makes another token of the right claims.
    token: Callable[[dict[str, Any]], str] | None = None
    # A page of its own, on which the person goes on.
    shows_page: bool = False
    # What discovery says otherwise.
    metadata: dict[str, Any] = field(default_factory=dict)
    # Paths that were asked for.
    asked: list[str] = field(default_factory=list)
    # What the browser came with, by the code that it was given; each is taken once.
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        (self.port,) = free_ports(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        routes = [
            ("/.well-known/openid-configuration", Discovery),
            ("/keys", Keys),
            ("/authorize", Authorize),
            ("/token", Token),
        ]

        async def start() -> HTTPServer:
            return Application(routes, provider=self).listen(self.port, "127.0.0.1")

        self._server = asyncio.run_coroutine_threadsafe(start(), self._loop).result(GIVE_UP_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._server.stop)
        asyncio.run_coroutine_threadsafe(self._server.close_all_connections(), self._loop).result(GIVE_UP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    @property
    def issuer(self) -> str:
        return f"http://localhost:{self.port}"

    def token_of(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": "1", "iat": now, "exp": now + 300, "nonce": nonce}
        claims |= self.claims
        return self.token(claims) if self.token else signed(claims, self.key, kid=self.key_id)


class _Handler(RequestHandler):
    @property
    def provider(self) -> OidcProvider:
        found: OidcProvider = self.application.settings["provider"]
        found.asked.append(self.request.path)
        return found


class Discovery(_Handler):
    def get(self) -> None:
        provider = self.provider
        places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        addresses = {name: f"{provider.issuer}/{place}" for name, place in places.items()}
        self.finish({"issuer": provider.issuer, **addresses, **provider.metadata})


class Keys(_Handler):
    def get(self) -> None:
        provider = self.provider
        numbers = provider.key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": provider.key_id}
        for name, number in (("n", numbers.n), ("e", numbers.e)):
            key[name] = encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))
        self.finish({"keys": [key]})


class Authorize(_Handler):
    def get(self) -> None:
        came = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        code = encoded(hashlib.sha256(came["state"].encode()).digest())
        self.provider.codes[code] = came
        back = {"code": code, "state": came["state"], "iss": self.provider.issuer}
        address = f"{came['redirect_uri']}?{urlencode(back)}"
        if self.provider.shows_page:
            self.finish(f'<a id="go" href="{xhtml_escape(address)}">I am olga</a>')
        else:
            self.redirect(address)


class Token(_Handler):
    def post(self) -> None:
        provider, form = (
            self.provider,
            {name: self.get_body_argument(name) for name in self.request.body_arguments},
        )
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        came = provider.codes.pop(form["code"], None)
        if self.request.headers.get("Authorization") != f"Basic {basic}":
            self.set_status(401)
            self.finish({"error": "invalid_client"})
        elif (
            came is None
            or came["redirect_uri"] != form["redirect_uri"]
            or came["code_challenge"] != encoded(hashlib.sha256(form["code_verifier"].encode()).digest())
        ):
            self.set_status(400)
            self.finish({"error": "invalid_grant"})
        else:
            self.finish(
                {"access_token": "a", "token_type": "Bearer", "id_token": provider.token_of(came["nonce"])}
            )
