# SPDX-License-Identifier: MIT
"""OIDC client credentials: fetched once, renewed in time, fetched again when refused, and failures reported."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from agent.core.errors import WaldurAnswerError, WaldurError
from agent.waldur import orders, pool
from agent.waldur.client import WaldurClient
from simulator.server.waldur import SimulatedWaldur
from tests.agent.waldur.clients import client_at, client_of, oidc
from tests.agent.waldur.conftest import StartStandIn
from tests.agent.waldur.stand_in import Answer, Asked, StandIn, html, says


def granted(waldur: SimulatedWaldur) -> int:
    """How many access tokens the simulated provider has given out."""
    return sum(token.scheme == "Bearer" for token in list(waldur.store.tokens.values()))


def with_oidc(waldur: SimulatedWaldur, **options: Any) -> WaldurClient:
    return client_of(waldur, **oidc(f"{waldur.root_url}/oidc/token"), **options)


class Provider:
    """A stand-in for Waldur and the OIDC provider in one; `refused` access tokens get a 401."""

    def __init__(self, **grant: Any) -> None:
        self.grant = grant
        self.given = 0
        self.refused: set[str] = set()

    def __call__(self, asked: Asked) -> Answer:
        if asked.target.endswith("/token"):
            self.given += 1
            return says({"access_token": f"token-{self.given}", **self.grant})
        bearer = asked.headers["Authorization"].removeprefix("Bearer ")
        return says({"detail": "Token has expired."}, 401) if bearer in self.refused else says([])


def ask(client: WaldurClient) -> list[Any]:
    return list(client.pages("list/"))


def test_one_token_serves_all_requests(waldur: SimulatedWaldur) -> None:
    client = with_oidc(waldur)
    assert granted(waldur) == 0
    for _ in range(5):
        orders.actionable(client)
    assert granted(waldur) == 1
    assert {entry.username for entry in waldur.requests.entries("GET *")} == {"agent"}


def test_the_grant_as_the_reference_asks_for_it(stand_in: StartStandIn) -> None:
    server = stand_in(Provider())
    ask(client_at(server.url, **oidc(f"{server.root}/token", client_id="me", secret="s&=+ \u00e9")))
    token_request = server.asked[0]
    assert token_request.form == {
        "grant_type": "client_credentials",
        "client_id": "me",
        "client_secret": "s&=+ \u00e9",
    }
    assert "Authorization" not in token_request.headers
    assert server.asked[1].headers["Authorization"] == "Bearer token-1"


def test_many_threads_fetch_one_token(stand_in: StartStandIn) -> None:
    provider = Provider()
    server = stand_in(provider)
    client = client_at(server.url, **oidc(f"{server.root}/token"))
    pool.each(range(40), lambda _: ask(client))
    assert provider.given == 1


@pytest.mark.parametrize(("life_s", "renewed_after_s"), [(300, 270), (2, 1)])
def test_a_token_is_renewed_before_it_expires(
    waldur: SimulatedWaldur, monkeypatch: pytest.MonkeyPatch, life_s: int, renewed_after_s: int
) -> None:
    """Half a minute before, or after half of its life: never used when that is over."""
    now_s = 1000.0
    monkeypatch.setattr("agent.waldur.auth.time", SimpleNamespace(monotonic=lambda: now_s))
    waldur.store.clock.freeze(datetime.now(UTC))
    waldur.site.configure(oidc_expires_in_s=life_s)
    client = with_oidc(waldur)
    for number in (1, 2, 3):
        for passed_s in (0.0, renewed_after_s - 0.5):
            now_s += passed_s
            waldur.store.clock.advance(passed_s)
            orders.actionable(client)
            assert granted(waldur) == number
        now_s += 0.5
        waldur.store.clock.advance(0.5)
    assert {entry.status for entry in waldur.requests.entries()} == {200}


@pytest.mark.parametrize("expires_in", [300, "300", None, "soon", -5, 0, float("inf"), {}])
def test_a_lifetime_that_is_long_or_unknown_means_one_fetch(stand_in: StartStandIn, expires_in: Any) -> None:
    provider = Provider(expires_in=expires_in)
    server = stand_in(provider)
    client = client_at(server.url, **oidc(f"{server.root}/token"))
    ask(client)
    ask(client)
    assert provider.given == 1


def test_a_refused_token_is_fetched_again_and_the_request_repeated(waldur: SimulatedWaldur) -> None:
    client = with_oidc(waldur)
    uuid = waldur.place_create_order(waldur.seed.project_uuids[0], "One", limits={"cpu": 1})
    orders.actionable(client)
    waldur.site.advance(3600)
    orders.approve(client, uuid)
    assert waldur.order(uuid).state.value == "executing"
    assert granted(waldur) == 2
    assert [entry.status for entry in waldur.requests.entries("POST *approve*")] == [401, 200]


def test_many_threads_with_a_refused_token_fetch_one_new_one(stand_in: StartStandIn) -> None:
    provider = Provider()
    server = stand_in(provider)
    client = client_at(server.url, **oidc(f"{server.root}/token"))
    ask(client)
    provider.refused.add("token-1")
    answers = pool.each(range(40), lambda _: ask(client))
    assert list(answers.values()) == [[]] * 40
    assert provider.given == 2


def test_a_provider_whose_tokens_are_always_refused_is_not_asked_for_ever(stand_in: StartStandIn) -> None:
    provider = Provider()
    provider.refused |= {f"token-{n}" for n in range(10)}
    server = stand_in(provider)
    with pytest.raises(WaldurError, match="Token has expired") as caught:
        ask(client_at(server.url, attempts=3, **oidc(f"{server.root}/token")))
    assert caught.value.denied
    assert "check oidc_client_id, and that Waldur trusts this provider" in str(caught.value)
    assert provider.given == 2


def test_a_static_token_that_is_refused_is_not_sent_again(stand_in: StartStandIn) -> None:
    server = stand_in(lambda _: says({"detail": "Invalid token."}, 401))
    with pytest.raises(WaldurError, match="check waldur_api_token"):
        ask(client_at(server.url, attempts=3))
    assert len(server.asked) == 1


def failing(script: Callable[[Asked], Answer], stand_in: StartStandIn) -> tuple[WaldurError, StandIn]:
    server = stand_in(script)
    with pytest.raises(WaldurError) as caught:
        ask(client_at(server.url, attempts=2, **oidc(f"{server.root}/token", secret="hush-hush")))
    assert "hush-hush" not in str(caught.value)
    assert [asked.target for asked in server.asked] == ["/token"] * len(server.asked)
    return caught.value, server


def test_wrong_credentials_are_reported_in_the_providers_words(waldur: SimulatedWaldur) -> None:
    client = client_of(waldur, **oidc(f"{waldur.root_url}/oidc/token", secret="hush-hush"))
    with pytest.raises(WaldurError) as caught:
        orders.actionable(client)
    error = caught.value
    assert (error.method, error.status, error.retryable, error.denied) == ("POST", 401, False, True)
    assert "answered 401: error: invalid_client. Check oidc_token_url, oidc_client_id (agent)" in str(error)
    assert "hush-hush" not in str(error)


@pytest.mark.parametrize(
    ("answer", "words", "retryable"),
    [
        (says({"error": "invalid_scope", "error_description": "No."}, 400), "error_description: No", False),
        (html("<title>Keycloak is starting</title>", 503), "Keycloak is starting", True),
        (Answer(hang_up=True), "closed connection without response. Check oidc_token_url", True),
        (says({"detail": "gone"}, 404), "gone", False),
    ],
)
def test_a_provider_that_fails(stand_in: StartStandIn, answer: Answer, words: str, retryable: bool) -> None:
    error, _ = failing(lambda _: answer, stand_in)
    assert words in str(error)
    assert "the OIDC provider http://127.0.0.1:" in str(error)
    assert error.retryable == retryable


@pytest.mark.parametrize(
    "answer",
    [
        says({}), says([]), says(None), says({"access_token": None}), says({"access_token": ""}),
        says({"access_token": 7}), says({"access_token": "two\nlines"}), html("<p>Log in</p>"), Answer(body=b""),
    ],
)  # fmt: skip
def test_an_answer_without_a_token(stand_in: StartStandIn, answer: Answer) -> None:
    error, _ = failing(lambda _: answer, stand_in)
    assert isinstance(error, WaldurAnswerError)
    assert "sent no access_token: is oidc_token_url its token endpoint?" in str(error)


@pytest.mark.parametrize("status", [302, 307, 308])
def test_the_client_secret_does_not_follow_a_redirect(stand_in: StartStandIn, status: int) -> None:
    elsewhere = stand_in(lambda _: says({"access_token": "caught"}))
    moved = Answer(status=status, body=b"", headers={"Location": f"{elsewhere.root}/token"})
    error, _ = failing(lambda _: moved, stand_in)
    assert error.status == status
    assert elsewhere.asked == []


def test_a_token_request_is_safe_to_repeat(stand_in: StartStandIn) -> None:
    provider, failures = Provider(), [Answer(status=503, body=b"", headers={})]

    def script(asked: Asked) -> Answer:
        return failures.pop() if failures else provider(asked)

    server = stand_in(script)
    assert ask(client_at(server.url, attempts=2, **oidc(f"{server.root}/token"))) == []


def test_the_provider_is_reached_as_waldur_is(stand_in: StartStandIn, certificate: str) -> None:
    """verify_ssl and global_proxy hold for the token endpoint too."""
    server = stand_in(Provider(), certificate=certificate)
    assert ask(client_at(server.url, verify_ssl=False, **oidc(f"{server.root}/token"))) == []
    proxy = stand_in(Provider())
    client = client_at("http://w.invalid/api/", proxy=proxy.root, **oidc("http://idp.invalid/token"))
    assert ask(client) == []
    assert proxy.asked[0].target == "http://idp.invalid/token"
