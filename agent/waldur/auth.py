# SPDX-License-Identifier: MIT
"""The login of requests: a static token, or an OIDC access token by client credentials that renews itself."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping

import requests
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError

from agent.config.model import OidcClient, WaldurAccess
from agent.config.secret import MASK, Secret, mask_url
from agent.core.errors import ConfigError, WaldurAnswerError, WaldurError
from agent.http import answers

OIDC_TIMEOUT_S = 30.0
DEFAULT_LIFETIME_S = 300.0
RENEW_BEFORE_S = 30.0


class WaldurAuth(AuthBase):
    """Puts the token on a request. `mask` takes it out of a text: error pages may show the request's headers."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        raise NotImplementedError

    def mask(self, text: str) -> str:
        raise NotImplementedError


class TokenAuth(WaldurAuth):
    def __init__(self, token: Secret) -> None:
        self._token = token

    def mask(self, text: str) -> str:
        return text.replace(self._token.reveal(), MASK)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Token {self._token.reveal()}"
        return request


class OidcAuth(WaldurAuth):
    """Bearer tokens by client credentials, kept until 30 s before they expire (short ones: half their life)."""

    def __init__(self, client: OidcClient, fetch: Callable[[OidcClient], tuple[str, float]]) -> None:
        self._client = client
        self._fetch = fetch
        self._lock = threading.Lock()
        self._header = ""
        self._renew_at_s = 0.0

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        with self._lock:
            if not self._header or time.monotonic() >= self._renew_at_s:
                access_token, lifetime_s = self._fetch(self._client)
                self._header = f"Bearer {access_token}"
                self._renew_at_s = time.monotonic() + max(lifetime_s - RENEW_BEFORE_S, lifetime_s / 2)
            request.headers["Authorization"] = self._header
        return request

    def mask(self, text: str) -> str:
        token = self._header.removeprefix("Bearer ")
        return text.replace(token, MASK) if token else text

    def forget(self, refused: requests.PreparedRequest) -> None:
        """Have the next request fetch a token, where the server refused this one and no other thread did so."""
        with self._lock:
            if refused.headers.get("Authorization") == self._header:
                self._header = ""


def auth_for(access: WaldurAccess, session: requests.Session) -> WaldurAuth:
    """Return the login that `access` gives. OIDC requests go over the same session, with its proxy and TLS settings.

    Raises ConfigError for a token that no header can carry.
    """
    if access.token:
        if not _fits_header(access.token.reveal()):
            raise ConfigError(
                f"waldur_api_token for {mask_url(access.url)} has a line break or a letter that no token has: "
                "copy it again"
            )
        return TokenAuth(access.token)
    if access.oidc is None:
        raise ConfigError(f"no token and no OIDC client is configured for {mask_url(access.url)}")
    return OidcAuth(access.oidc, lambda client: _client_credentials(session, client))


def _client_credentials(session: requests.Session, client: OidcClient) -> tuple[str, float]:
    """Return an access token and its lifetime in seconds. Raises WaldurError, WaldurAnswerError.

    Redirects are not followed: the secret is for one address.
    """
    form = {
        "grant_type": "client_credentials",
        "client_id": client.client_id,
        "client_secret": client.client_secret.reveal(),
    }
    where = mask_url(client.token_url)
    try:
        answer = session.post(
            client.token_url,
            data=form,
            timeout=OIDC_TIMEOUT_S,
            auth=lambda request: request,
            allow_redirects=False,
        )
    except (OSError, HTTPError) as error:
        raise WaldurError(
            f"no answer from the OIDC provider {where}: {answers.cause(error)}. Check oidc_token_url",
            method="POST",
            path=where,
        ) from error
    if answer.status_code >= 300:
        detail = answers.detail(answer, lambda text: text.replace(client.client_secret.reveal(), MASK))
        raise WaldurError(
            f"the OIDC provider {where} answered {answer.status_code}: {detail.rstrip('.')}. "
            f"Check oidc_token_url, oidc_client_id ({client.client_id}) and oidc_client_secret",
            method="POST",
            path=where,
            status=answer.status_code,
            detail=detail,
        )
    try:
        document = answers.document(answer)
    except ValueError:
        document = None
    token = document.get("access_token") if isinstance(document, Mapping) else None
    if not isinstance(token, str) or not token or not _fits_header(token):
        raise WaldurAnswerError(
            f"the OIDC provider {where} sent no access_token: is oidc_token_url its token endpoint?",
            method="POST",
            path=where,
            status=answer.status_code,
        )
    try:
        lifetime_s = float(document.get("expires_in"))
    except (TypeError, ValueError):
        lifetime_s = 0.0
    is_usable = math.isfinite(lifetime_s) and lifetime_s > 0
    return token, lifetime_s if is_usable else DEFAULT_LIFETIME_S


def _fits_header(text: str) -> bool:
    return text.isascii() and text.isprintable()
