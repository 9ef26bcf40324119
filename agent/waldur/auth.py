# SPDX-License-Identifier: MIT
"""The login of requests: a static token, or an OIDC access token by client credentials that renews itself."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from agent.config.model import OidcClient, WaldurAccess
from agent.config.secret import MASK, Secret, mask_url
from agent.core.errors import ConfigError, WaldurAnswerError, WaldurError
from agent.http.answers import Mask
from agent.http.client import HttpClient, NoAnswer

DEFAULT_LIFETIME_S = 300.0
RENEW_BEFORE_S = 30.0

# Makes a client for an address, whose answers are logged without the secrets that the mask knows.
MakeClient = Callable[[str, Mask], HttpClient]


class WaldurAuth(Protocol):
    def header(self) -> str:
        """Return what the header Authorization says. Raises WaldurError."""

    def mask(self, text: str) -> str:
        """Take the token out of a text: error pages may show the request's headers."""

    def renew(self, refused: str) -> bool:
        """Have the next header made anew, where the server refused this one. Return whether there is another."""


class TokenAuth:
    def __init__(self, token: Secret) -> None:
        self._token = token

    def header(self) -> str:
        return f"Token {self._token.reveal()}"

    def mask(self, text: str) -> str:
        return text.replace(self._token.reveal(), MASK)

    def renew(self, _refused: str) -> bool:
        return False


class OidcAuth:
    """Bearer tokens by client credentials, kept until 30 s before they expire (short ones: half their life)."""

    def __init__(self, client: OidcClient, make_client: MakeClient) -> None:
        self._client = client
        secret = client.client_secret.reveal()
        self._http = make_client(client.token_url, lambda text: text.replace(secret, MASK))
        self._lock = threading.Lock()
        self._header = ""
        self._renew_at_s = 0.0

    def header(self) -> str:
        with self._lock:
            if not self._header or time.monotonic() >= self._renew_at_s:
                access_token, lifetime_s = self._fetch()
                self._header = f"Bearer {access_token}"
                self._renew_at_s = time.monotonic() + max(lifetime_s - RENEW_BEFORE_S, lifetime_s / 2)
            return self._header

    def mask(self, text: str) -> str:
        token = self._header.removeprefix("Bearer ")
        return text.replace(token, MASK) if token else text

    def renew(self, refused: str) -> bool:
        with self._lock:
            # Another thread may have done so in the meantime.
            if refused == self._header:
                self._header = ""
        return True

    def _fetch(self) -> tuple[str, float]:
        """Return an access token and its lifetime in seconds. Raises WaldurError, WaldurAnswerError."""
        client = self._client
        where = mask_url(client.token_url)
        form = {
            "grant_type": "client_credentials",
            "client_id": client.client_id,
            "client_secret": client.client_secret.reveal(),
        }
        try:
            answer = self._http.send("POST", form=form, is_repeatable=True)
        except NoAnswer as error:
            raise WaldurError(
                f"no answer from the OIDC provider {where}: {error.reason}. Check oidc_token_url",
                method="POST",
                path=where,
            ) from error
        if answer.status >= 300:
            detail = answer.detail()
            raise WaldurError(
                f"the OIDC provider {where} answered {answer.status}: {detail.rstrip('.')}. "
                f"Check oidc_token_url, oidc_client_id ({client.client_id}) and oidc_client_secret",
                method="POST",
                path=where,
                status=answer.status,
                detail=detail,
            )
        document = answer.object() or {}
        token = document.get("access_token")
        if not isinstance(token, str) or not token or not _fits_header(token):
            raise WaldurAnswerError(
                f"the OIDC provider {where} sent no access_token: is oidc_token_url its token endpoint?",
                method="POST",
                path=where,
                status=answer.status,
            )
        try:
            lifetime_s = float(document.get("expires_in", 0))
        except (TypeError, ValueError):
            lifetime_s = 0.0
        is_usable = math.isfinite(lifetime_s) and lifetime_s > 0
        return token, lifetime_s if is_usable else DEFAULT_LIFETIME_S


def auth_for(access: WaldurAccess, make_client: MakeClient) -> WaldurAuth:
    """Return the login that `access` gives. Raises ConfigError for a token that no header can carry."""
    if access.token:
        if not _fits_header(access.token.reveal()):
            raise ConfigError(
                f"waldur_api_token for {mask_url(access.url)} has a line break or a letter that no token has: "
                "copy it again"
            )
        return TokenAuth(access.token)
    if access.oidc is None:
        raise ConfigError(f"no token and no OIDC client is configured for {mask_url(access.url)}")
    return OidcAuth(access.oidc, make_client)


def _fits_header(text: str) -> bool:
    return text.isascii() and text.isprintable()
