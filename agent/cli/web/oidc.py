# SPDX-License-Identifier: MIT
"""Login by a provider of OpenID Connect: the authorization code with PKCE (RFC 7636), and an ID token whose signature,
issuer, audience, time and nonce are checked. The role follows from a claim.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from agent.cli.web.login import Door
from agent.cli.web.roles import LoginRefused, Person, Role
from agent.config.model import OidcLogin
from agent.config.unencrypted import leads_away
from agent.core.errors import ConfigError, SiteAgentError
from agent.http.answers import Answer
from agent.http.client import HttpClient, NoAnswer, Timeouts

# Public keys only: with a shared secret as a key the provider's public one could be taken for it.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"]
CLOCKS_APART_S = 60
# How long the provider's addresses and keys are kept. A key that is not among them is asked for at once.
METADATA_S = 600.0
# So long what was wrong with them is said again, and the provider is not asked.
UNUSABLE_S = 5.0
TIMEOUTS = Timeouts(connect_s=5, read_s=10)
NAME = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
# Of the cookie that a person has while being at the provider.
AWAY, AWAY_S = "console_oidc", 600.0
BACK = "/login/oidc/back"
MISSING = "console.oidc needs a package that is not installed: pip install 'waldur-site-cluster[oidc]'"


class ProviderUnusable(SiteAgentError):
    """The provider does not answer, or not as OpenID Connect wants it: nobody logs in by it, and passwords go on."""

    retryable = True


@dataclass(frozen=True, slots=True)
class Away:
    """What is remembered of a browser that was sent to the provider."""

    state: str = field(default_factory=secrets.token_urlsafe)
    nonce: str = field(default_factory=secrets.token_urlsafe)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Provider:
    """The site's provider, asked over HTTP; used by several threads."""

    def __init__(self, settings: OidcLogin) -> None:
        """Raises ConfigError where the extra package is missing."""
        if find_spec("joserfc") is None:
            raise ConfigError(MISSING)
        self._settings = settings
        self.issuer = settings.issuer
        self._kept: tuple[float, Mapping[str, Any], Any] | None = None
        self._unread: tuple[float, str] = (float("-inf"), "")

    @property
    def _redirect_uri(self) -> str:
        return f"{self._settings.url.rstrip('/')}{BACK}"

    def login_url(self, away: Away) -> str:
        """Return where the browser is sent. Raises ProviderUnusable."""
        metadata, _ = self._known()
        address = metadata["authorization_endpoint"]
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._settings.client_id,
                "redirect_uri": self._redirect_uri,
                "scope": " ".join(self._settings.scopes),
                "state": away.state,
                "nonce": away.nonce,
                "code_challenge": away.challenge,
                "code_challenge_method": "S256",
            }
        )
        return f"{address}{'&' if '?' in address else '?'}{query}"

    def person(self, code: str, away: Away) -> Person:
        """Return whom the provider names for a code. Raises LoginRefused, ProviderUnusable."""
        claims = self._claims(self._token(code, away), away.nonce)
        name = claims.get(self._settings.name_claim)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise _refused(f"the claim {self._settings.name_claim} has no name of letters, digits and ._@+-")
        values = _values(claims, self._settings.role_claim)
        for role, wanted in (
            (Role.OPERATOR, self._settings.operators),
            (Role.VIEWER, self._settings.viewers),
        ):
            if values.intersection(wanted):
                return Person(name, role)
        raise LoginRefused(
            f"{name} may not use the console: the provider names no group of its viewers or operators",
            by=name,
            why=f"no value of the claim {self._settings.role_claim} has a role",
        )

    def _token(self, code: str, away: Away) -> str:
        """Exchange the code. Raises LoginRefused, ProviderUnusable."""
        settings, (metadata, _) = self._settings, self._known()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "client_id": settings.client_id,
            "code_verifier": away.verifier,
        }
        headers = {}
        if settings.client_secret_file:
            try:
                secret = Path(settings.client_secret_file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise self._unusable(
                    f"the client's secret in {settings.client_secret_file} cannot be read: {error}"
                ) from error
            methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
            if "client_secret_basic" in methods:
                both = f"{urlencode({'': settings.client_id})[1:]}:{urlencode({'': secret})[1:]}"
                headers["Authorization"] = f"Basic {base64.b64encode(both.encode()).decode()}"
            else:
                form["client_secret"] = secret
        answer = self._ask(metadata["token_endpoint"], "POST", form=form, headers=headers)
        found = answer.object() or {}
        token = found.get("id_token")
        if answer.status == HTTPStatus.OK and isinstance(token, str):
            return token
        if found.get("error") == "invalid_grant":
            raise _refused("the provider does not know the code, or not any more")
        # An `invalid_client` is no fault of the person's.
        raise self._unusable(
            f"the token endpoint answered {answer.status}, {found.get('error', 'without an ID token')!s:.80}"
        )

    def _claims(self, token: str, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token that is right. Raises LoginRefused, ProviderUnusable."""
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        settings = self._settings
        try:
            try:
                found = jwt.decode(token, self._known()[1], algorithms=ALGORITHMS)
            except InvalidKeyIdError:
                self._kept = None
                found = jwt.decode(token, self._known()[1], algorithms=ALGORITHMS)
            jwt.JWTClaimsRegistry(
                leeway=CLOCKS_APART_S,
                iss={"essential": True, "value": settings.issuer},
                sub={"essential": True},
                aud={"essential": True, "value": settings.client_id},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True},
            ).validate(found.claims)
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise _refused(f"the ID token is not right ({type(error).__name__}: {error!s:.80})") from error
        claims: Mapping[str, Any] = found.claims
        # Of a list one value would be enough for the library.
        if claims["nonce"] != nonce:
            raise _refused("the ID token was made for another login")
        is_for_several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", "" if is_for_several else settings.client_id) != settings.client_id:
            raise _refused("the ID token is for several clients, or for another one")
        return claims

    def _known(self) -> tuple[Mapping[str, Any], Any]:
        """Return the provider's metadata and its keys. Raises ProviderUnusable."""
        kept, (failed_s, why) = self._kept, self._unread
        if kept is None or time.monotonic() - kept[0] > METADATA_S:
            if time.monotonic() - failed_s < UNUSABLE_S:
                raise ProviderUnusable(why)
            try:
                kept = self._kept = time.monotonic(), *self._read()
            except ProviderUnusable as error:
                self._unread = time.monotonic(), str(error)
                raise
        return kept[1], kept[2]

    def _read(self) -> tuple[Mapping[str, Any], Any]:
        """Read the provider's metadata and its keys. Raises ProviderUnusable."""
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        metadata = self._document(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if metadata.get("issuer") != self.issuer:
            raise self._unusable(f"it calls itself {metadata.get('issuer')!s:.200}: write that as `issuer`")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            address = metadata.get(name)
            if not isinstance(address, str) or leads_away(address, "http"):
                raise self._unusable(f"it has no {name} with https://")
        document: Any = self._document(metadata["jwks_uri"])
        try:
            return metadata, KeySet.import_key_set(document)
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise self._unusable(f"its keys cannot be read: {error!s:.80}") from error

    def _document(self, url: str) -> Mapping[str, Any]:
        answer = self._ask(url, "GET")
        found = answer.object()
        if answer.status != HTTPStatus.OK or found is None:
            raise self._unusable(f"{url} answered {answer.status} {answer.reason}, and no document")
        return found

    def _ask(self, url: str, method: str, **what: Any) -> Answer:
        try:
            return HttpClient(url, timeouts=TIMEOUTS).send(method, **what)
        except NoAnswer as error:
            raise self._unusable(f"{url} does not answer: {error.reason}") from error

    def _unusable(self, why: str) -> ProviderUnusable:
        return ProviderUnusable(f"nobody can log in by {self.issuer} now: {why}")


def _refused(why: str) -> LoginRefused:
    return LoginRefused("The login was not accepted. Try again; the console's journal says why.", why=why)


def _values(claims: Mapping[str, Any], name: str) -> set[str]:
    """Return the texts of a claim: one by that name, or with dots of maps within each other."""
    found: Any = claims
    for part in [name] if name in claims else name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    values = found if isinstance(found, list) else [found]
    return {each for each in values if isinstance(each, str)}


class OidcDoor(Door):
    @property
    def provider(self) -> Provider:
        found = self.application.settings["provider"]
        assert isinstance(found, Provider)
        return found


class ToProvider(OidcDoor):
    """Sends the browser to the provider. The cookie comes back with it from there, so it is not for this site alone."""

    async def get(self) -> None:
        away = Away()
        loop = asyncio.get_running_loop()
        url = await loop.run_in_executor(self.console.at_provider, self.provider.login_url, away)
        self.set_signed_cookie(
            AWAY, json.dumps(asdict(away)), expires_days=None, path=BACK, httponly=True, samesite="Lax"
        )
        self.redirect(url, status=HTTPStatus.SEE_OTHER)


class FromProvider(OidcDoor):
    async def get(self) -> None:
        cookie = self.get_signed_cookie(AWAY, max_age_days=AWAY_S / 86400)
        self.clear_cookie(AWAY, path=BACK)
        code, provider = self.get_query_argument("code", ""), self.provider
        state, issuer = self.get_query_argument("state", ""), self.get_query_argument("iss", "")

        def check() -> Person:
            away = Away(**json.loads(cookie)) if cookie else None
            if away is None or not hmac.compare_digest(away.state.encode(), state.encode()):
                raise _refused("this browser was not sent to the provider, or too long ago")
            if issuer and issuer != provider.issuer:
                raise _refused("the answer is another provider's")
            if not code:
                raise _refused(f"the provider says {self.get_query_argument('error', 'nothing'):.80}")
            return provider.person(code, away)

        self.begin(await self.attempt("(provider)", self.console.at_provider, check))
        # A redirect would still be the provider's: a browser sends the session's cookie to where our own page leads.
        self.set_header("Refresh", "0; url=/")
        self.show("console_entered")


ROUTES = [("/login/oidc", ToProvider), (BACK, FromProvider)]
