# SPDX-License-Identifier: MIT
"""Answers without end: bytes, packed ones too, and seconds are bounded for every client, whatever asks."""

from __future__ import annotations

import gzip
import itertools

import pytest

from agent.core.errors import WaldurError
from agent.waldur import me
from agent.waldur.transport import Bounds
from tests.waldur.clients import client_at, oidc
from tests.waldur.conftest import StartStandIn
from tests.waldur.stand_in import Answer, Asked, in_turn, says

SMALL = Bounds(answer_bytes=10_000)
SHORT = Bounds(answer_s=0.3)
PACKED = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
BOMB = Answer(body=gzip.compress(b" " * 10_000_000), headers=PACKED)
TOO_LARGE = "the answer is larger than 10000 bytes"
TOO_SLOW = r"the answer took longer than 0\.3 s"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(says(["x" * 20_000]), id="plain"),
        pytest.param(BOMB, id="packed"),
        pytest.param(Answer(status=403, body=BOMB.body, headers=PACKED), id="a packed error page"),
        pytest.param(Answer(status=500, body=b"x" * 20_000, headers={}), id="an error page"),
    ],
)
def test_an_answer_that_is_too_large(stand_in: StartStandIn, answer: Answer) -> None:
    server = stand_in(lambda _: answer)
    with pytest.raises(WaldurError, match=TOO_LARGE) as caught:
        me.whoami(client_at(server.url, bounds=SMALL))
    assert caught.value.retryable
    assert "Check waldur_api_url" in str(caught.value)


def test_what_is_thrown_away_before_a_retry_counts_too(stand_in: StartStandIn) -> None:
    """The page of the error is larger than what is allowed: it is not read to its end, and the retry works."""
    server = stand_in(in_turn(Answer(status=502, body=b"x" * 50_000_000), says({"username": "ann"})))
    assert me.whoami(client_at(server.url, bounds=SMALL, attempts=2)).username == "ann"
    assert len(server.connections()) == 2


def test_a_packed_answer_within_the_bounds_is_read(stand_in: StartStandIn) -> None:
    body = gzip.compress(b'{"username": "ann"}' + b" " * 9_000)
    server = stand_in(lambda _: Answer(body=body, headers=PACKED))
    client = client_at(server.url, bounds=SMALL)
    assert [me.whoami(client).username for _ in range(3)] == ["ann"] * 3
    assert len(server.connections()) == 1


@pytest.mark.parametrize("part", ["headers", "body"])
@pytest.mark.parametrize("secure", [False, True])
def test_an_answer_that_trickles(stand_in: StartStandIn, certificate: str, part: str, secure: bool) -> None:
    server = stand_in(
        lambda _: Answer(body=b" " * 60_000, trickle=part), certificate=certificate if secure else ""
    )
    with pytest.raises(WaldurError, match=TOO_SLOW):
        me.whoami(client_at(server.url, bounds=SHORT, verify_ssl=False))


def test_an_answer_that_trickles_through_a_proxy(stand_in: StartStandIn) -> None:
    proxy = stand_in(lambda _: Answer(body=b" " * 60_000, trickle="headers"))
    client = client_at("http://waldur.example.invalid/api/", proxy=proxy.root, bounds=SHORT)
    with pytest.raises(WaldurError, match=TOO_SLOW):
        me.whoami(client)


@pytest.mark.parametrize(
    ("answer", "bounds", "words"),
    [(BOMB, SMALL, TOO_LARGE), (Answer(body=b" " * 60_000, trickle="body"), SHORT, TOO_SLOW)],
)
def test_the_oidc_provider_is_bounded_too(
    stand_in: StartStandIn, answer: Answer, bounds: Bounds, words: str
) -> None:
    provider = stand_in(lambda _: answer)
    client = client_at(provider.url, bounds=bounds, **oidc(f"{provider.root}/token"))
    with pytest.raises(WaldurError, match=words):
        me.whoami(client)


def test_each_answer_has_its_own_time(stand_in: StartStandIn) -> None:
    """Over one connection: what the answers before took does not count."""
    numbers = itertools.count()

    def script(_: Asked) -> Answer:
        return says({"username": str(next(numbers))})

    server = stand_in(script)
    client = client_at(server.url, bounds=Bounds(answer_bytes=1000))
    assert [me.whoami(client).username for _ in range(30)] == [str(n) for n in range(30)]
    assert len(server.connections()) == 1
