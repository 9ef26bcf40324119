# SPDX-License-Identifier: MIT
"""Login by the site's provider: who gets in, with which role, and every token that is refused."""

from __future__ import annotations

import hmac
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from agent.cli.web import oidc
from agent.cli.web.roles import LoginRefused, Person, Role
from agent.config.model import ConsoleSettings, OidcLogin, Settings
from rig.oidc_provider import CLIENT, SECRET, OidcProvider, encoded, new_key, signed
from rig.processes import free_ports, wait_until
from tests.agent.cli.conftest import Command
from tests.agent.cli.usage.browser import Browser
from tests.agent.cli.web.running import Running, serving

pytest.importorskip("joserfc")

Claims = dict[str, Any]
strangers_key = cache(new_key)


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    with OidcProvider() as running:
        yield running


@pytest.fixture
def login(provider: OidcProvider, tmp_path: Path) -> OidcLogin:
    secret = tmp_path / "client-secret"
    secret.write_text(f"{SECRET}\n")
    return OidcLogin(
        issuer=provider.issuer,
        client_id=CLIENT,
        client_secret_file=str(secret),
        url=f"http://127.0.0.1:{free_ports(1)[0]}",
        role_claim="groups",
        operators=("hpc-admins",),
        viewers=("hpc-support", "staff"),
    )


@pytest.fixture
def console(site_settings: Settings, login: OidcLogin) -> Iterator[Running]:
    port = urlsplit(login.url).port or 0
    with serving(replace(site_settings, console=ConsoleSettings(oidc=login)), port=port) as running:
        yield running


def came_back(console: Running, session: requests.Session) -> requests.Response:
    """Go to the provider and come back."""
    return session.get(f"{console.url}/login/oidc")


def test_who_comes_from_the_provider_is_logged_in_with_the_role_of_the_claim(
    console: Running, provider: OidcProvider, command: Command
) -> None:
    session = console.session()
    page = came_back(console, session)
    assert page.status_code == HTTPStatus.OK and page.headers["Refresh"] == "0; url=/"
    assert "approved" not in command("approve", "-c", console.config).out
    assert console.approve(session).status_code == HTTPStatus.OK
    assert "operator olga (console)" in command("audit", "-c", console.config).out
    provider.claims = {"preferred_username": "victor@example.org", "groups": "staff"}
    viewer = console.session()
    came_back(console, viewer)
    assert (
        console.approve(viewer, shown=" ".join(console.found.plan.marks)).status_code == HTTPStatus.FORBIDDEN
    )
    # The code and the cookie of the way there are good for once.
    assert not [each for each in viewer.cookies if each.name == oidc.AWAY]


def unsigned(claims: Claims) -> str:
    header = encoded(json.dumps({"alg": "none"}).encode())
    return f"{header}.{encoded(json.dumps(claims).encode())}."


def signed_with_the_public_key(claims: Claims) -> str:
    """What a library takes that lets the token choose: HMAC with the public key as its secret."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = strangers_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{encoded(json.dumps({'alg': 'HS256', 'kid': 'one'}).encode())}.{encoded(json.dumps(claims).encode())}"
    return f"{text}.{encoded(hmac.digest(public, text.encode(), sha256))}"


def of(**changed: Any) -> Callable[[Claims], Claims]:
    return lambda claims: {name: value for name, value in {**claims, **changed}.items() if value is not None}


WRONG: dict[str, Callable[[Claims], Claims]] = {
    "old": of(exp=int(time.time()) - 3600),
    "without an end": of(exp=None),
    "with an end in words": of(exp="tomorrow"),
    "not yet valid": of(nbf=int(time.time()) + 86_400),
    "another issuer": of(iss="https://login.example.org"),
    "without an issuer": of(iss=None),
    "somebody else's": of(aud="another-client"),
    "without an audience": of(aud=None),
    "for several clients": of(aud=[CLIENT, "another-client"]),
    "authorized for another": of(aud=[CLIENT, "another-client"], azp="another-client"),
    "another nonce": of(nonce="x"),
    "without a nonce": of(nonce=None),
    "several nonces": lambda claims: {**claims, "nonce": [claims["nonce"], "x"]},
    "without a person": of(sub=None),
    "without a name": of(preferred_username=None),
    "a name with a line": of(preferred_username="olga\nroot"),
    "a name that reads otherwise": of(preferred_username="olga (console) ‮"),
    "without groups": of(groups=None),
    "other groups": of(groups=["students"]),
    "groups that are numbers": of(groups=[1, {"hpc-admins": 1}]),
}
FORGED: dict[str, Callable[[Claims], str]] = {
    "unsigned": unsigned,
    "another key": lambda claims: signed(claims, strangers_key(), kid="one"),
    "a key that nobody has": lambda claims: signed(claims, strangers_key(), kid="two"),
    "a key in the token": lambda claims: signed(
        claims, strangers_key(), kid="one", jku="http://127.0.0.1:1/keys"
    ),
    "signed with what is public": signed_with_the_public_key,
    "no token": lambda _: "no.token.",
}


@pytest.mark.parametrize("what", [*WRONG, *FORGED])
def test_a_token_that_is_wrong_names_nobody(what: str, login: OidcLogin, provider: OidcProvider) -> None:
    change = WRONG.get(what)
    provider.token = FORGED.get(what) or (lambda claims: signed(change(claims), provider.key, kid="one"))  # type: ignore[misc]
    with pytest.raises(LoginRefused) as refused:
        person_of(login)
    assert refused.value.why and "olga\n" not in refused.value.why
    provider.token = None
    assert person_of(login) == Person("olga", Role.OPERATOR)


def person_of(login: OidcLogin) -> Person:
    """Go to the provider as a browser does, and take its code."""
    ours, away = oidc.Provider(login), oidc.Away()
    back = requests.get(ours.login_url(away), allow_redirects=False, timeout=600).headers["Location"]
    return ours.person(parse_qs(urlsplit(back).query)["code"][0], away)


def test_who_is_refused_stays_out_and_is_in_the_journal(
    console: Running, provider: OidcProvider, command: Command
) -> None:
    session = console.session()
    provider.token = unsigned
    assert "The login was not accepted." in came_back(console, session).text
    provider.token, provider.claims = None, {"preferred_username": "stu", "groups": ["students"]}
    answer = came_back(console, session)
    assert answer.status_code == HTTPStatus.FORBIDDEN
    assert "stu may not use the console" in answer.text
    assert session.get(console.url).url == f"{console.url}/login"
    said = command("audit", "-c", console.config).out
    assert "the ID token is not right" in said and SECRET not in said
    assert re.search(r"refused a login .*no value of the claim groups has a role  \[operator stu\]", said)


def test_an_answer_that_this_browser_did_not_ask_for_is_refused(
    console: Running, provider: OidcProvider
) -> None:
    ours, theirs = console.session(), console.session()

    def answer_of(session: requests.Session) -> str:
        to = session.get(f"{console.url}/login/oidc", allow_redirects=False).headers["Location"]
        return str(session.get(to, allow_redirects=False).headers["Location"])

    # Somebody leads this browser to an answer that was made for his own login.
    assert ours.get(answer_of(theirs)).status_code == HTTPStatus.FORBIDDEN
    assert ours.get(console.url).url == f"{console.url}/login"
    own = answer_of(ours)
    swapped = re.sub("code=[^&]*", f"code={parse_qs(urlsplit(answer_of(theirs)).query)['code'][0]}", own)
    assert ours.get(swapped).status_code == HTTPStatus.FORBIDDEN, "a code of somebody else's: PKCE"
    own = answer_of(ours)
    assert ours.get(own.replace("iss=http", "iss=https")).status_code == HTTPStatus.FORBIDDEN
    own = answer_of(ours)
    assert ours.get(own).status_code == HTTPStatus.OK
    assert theirs.get(own).status_code == HTTPStatus.FORBIDDEN, "once more"


def test_keys_may_change_and_the_provider_may_be_away(
    console: Running, provider: OidcProvider, tmp_path: Path
) -> None:
    came_back(console, console.session())
    provider.key, provider.key_id = strangers_key(), "two"
    assert came_back(console, console.session()).headers["Refresh"]
    # Kept: the address of the provider's page is not asked for each time.
    assert provider.asked.count("/.well-known/openid-configuration") == 2
    (tmp_path / "client-secret").write_text("old")
    refused = came_back(console, console.session())
    assert refused.status_code == HTTPStatus.SERVICE_UNAVAILABLE
    assert "the token endpoint answered 401, invalid_client" in refused.text


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ({"issuer": "https://other.example.org"}, "it calls itself https://other.example.org: write that as"),
        ({"token_endpoint": "http://login.example.org/token"}, "it has no token_endpoint with https://"),
        ({"jwks_uri": None}, "it has no jwks_uri with https://"),
        ({"jwks_uri": "http://127.0.0.1:1/keys"}, "http://127.0.0.1:1/keys does not answer"),
        ({"jwks_uri": "{issuer}/none"}, "answered 404 Not Found"),
    ],
)  # fmt: skip
def test_a_provider_that_is_not_as_it_should_be_is_named_and_passwords_go_on(
    metadata: dict[str, str | None],
    sentence: str,
    console: Running,
    provider: OidcProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(oidc, "UNUSABLE_S", 600.0)
    provider.metadata = {
        name: value and value.replace("{issuer}", provider.issuer) for name, value in metadata.items()
    }
    answer = came_back(console, console.session())
    assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
    assert f"nobody can log in by {provider.issuer} now: " in answer.text and sentence in answer.text
    assert sentence in came_back(console, console.session()).text
    assert provider.asked.count("/.well-known/openid-configuration") == 1, "asked again at once"
    assert console.log_in("ann").get(console.url).status_code == HTTPStatus.OK


def test_roles_may_stand_in_a_map_and_in_a_claim_with_dots() -> None:
    claims = {"realm_access": {"roles": ["a", "b"]}, "https://example.org/roles": "c"}
    assert oidc._values(claims, "realm_access.roles") == {"a", "b"}
    assert oidc._values(claims, "https://example.org/roles") == {"c"}
    assert oidc._values(claims, "realm_access.groups") == oidc._values(claims, "x") == set()


@pytest.mark.real_part
def test_in_a_browser_the_session_begins_behind_another_sites_page(
    console: Running, provider: OidcProvider, browser: Browser
) -> None:
    """The provider is another site for the browser: a cookie for our own site alone is not sent with its redirect."""
    provider.shows_page = True

    def shows(text: str) -> None:
        wait_until(text, lambda: text in browser.evaluate("document.body ? document.body.innerText : ''"))

    browser.open(f"{console.url}/login", width=375)
    shows("provider")
    browser.evaluate("document.querySelector('a[href=\"/login/oidc\"]').click()")
    shows("I am olga")
    browser.evaluate("document.querySelector('#go').click()")
    shows("olga, operator")
    wait_until("the first page", lambda: browser.evaluate("location.pathname") == "/")
