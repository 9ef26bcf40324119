# SPDX-License-Identifier: MIT
"""Answers without end: bytes, packed ones too, values and seconds are bounded for every client, whatever asks."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from agent.core.bounded_json import TOO_DEEP
from agent.core.errors import WaldurError
from agent.http.client import CHUNK_BYTES
from agent.waldur import me
from agent.waldur.listing import Bounds
from rig.processes import REPOSITORY
from tests.agent.waldur.clients import client_at, oidc
from tests.agent.waldur.conftest import StartStandIn
from tests.agent.waldur.stand_in import Answer, Asked, in_turn, says

SMALL = Bounds(answer_bytes=10_000)
SHORT = Bounds(answer_s=0.3)
PACKED = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
BOMB = Answer(body=gzip.compress(b" " * 1_000_000), headers=PACKED)
TOO_LARGE = "the answer is larger than 10000 bytes"
FEW = Bounds(answer_values=1000)
TOO_SLOW = r"the answer took longer than 0\.3 s"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(says(["x" * 20_000]), id="plain"),
        pytest.param(BOMB, id="packed"),
    ],
)
def test_an_answer_that_is_too_large(stand_in: StartStandIn, answer: Answer) -> None:
    server = stand_in(lambda _: answer)
    with pytest.raises(WaldurError, match=TOO_LARGE) as caught:
        me.whoami(client_at(server.url, bounds=SMALL))
    assert caught.value.retryable
    assert "Check waldur_api_url" in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(Answer(status=403, body=BOMB.body, headers=PACKED), "403: Forbidden", id="packed"),
        pytest.param(Answer(status=500, body=b"x" * 5_000_000, headers={}), "500: xxx", id="plain"),
    ],
)
def test_an_error_page_that_is_too_large_is_cut(
    stand_in: StartStandIn, monkeypatch: pytest.MonkeyPatch, answer: Answer, words: str
) -> None:
    """Its status counts. It is read no further than an answer may be."""
    read: list[int] = []
    monkeypatch.setattr("agent.http.client.values_in", lambda content, **_: read.append(len(content)) or 0)
    server = stand_in(lambda _: answer)
    with pytest.raises(WaldurError, match=f"Waldur answered {words}"):
        me.whoami(client_at(server.url, bounds=SMALL))
    assert max(read) <= 10_000 + CHUNK_BYTES


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


@pytest.mark.parametrize("status", [200, 403])
def test_an_answer_with_too_many_values(stand_in: StartStandIn, status: int) -> None:
    """A few bytes each, and objects of 72 once they are read."""
    body = gzip.compress(b"[" + b"{}," * 600 + b"{}]")
    server = stand_in(lambda _: Answer(status=status, body=body, headers=PACKED))
    with pytest.raises(WaldurError, match="the answer has 1202 values, and 1000 are read") as caught:
        me.whoami(client_at(server.url, bounds=FEW))
    assert caught.value.retryable
    assert server.url.rstrip("/") in str(caught.value)
    assert "Nothing of it is used. Check waldur_api_url" in str(caught.value)


def test_commas_in_a_text_are_no_values(stand_in: StartStandIn) -> None:
    server = stand_in(lambda _: says({"username": "ann", "description": "a, [b], {c: d}" * 1000}))
    assert me.whoami(client_at(server.url, bounds=FEW)).username == "ann"


@pytest.mark.parametrize("body", ["[" * 20_000, '{"a":' * 20_000 + "1" + "}" * 20_000])
def test_an_answer_that_python_cannot_read_for_its_depth(stand_in: StartStandIn, body: str) -> None:
    server = stand_in(lambda _: Answer(body=body.encode()))
    with pytest.raises(WaldurError, match="cannot be read: it is nested in more than 64 levels") as caught:
        me.whoami(client_at(server.url))
    assert caught.value.retryable
    assert server.url in str(caught.value)


def test_a_value_that_is_nested_too_deeply_spoils_no_other(stand_in: StartStandIn) -> None:
    """Python reads it, and whatever walks it would end in a RecursionError."""
    deep = "[" * 900 + "]" * 900
    server = stand_in(
        lambda _: Answer(body=f'[{{"uuid": "a", "attributes": {deep}}}, {{"uuid": "b"}}]'.encode())
    )
    one, two = client_at(server.url).pages("list/")
    assert (one["uuid"], two["uuid"]) == ("a", "b")
    assert TOO_DEEP in json.dumps(one)


def pages_of(items: str, pages: int) -> Callable[[Asked], Answer]:
    """A listing of the same page again and again, with its items distinguished by the number of the page."""

    def script(asked: Asked) -> Answer:
        number = int(dict(asked.query).get("page", "1"))
        headers = {**PACKED, "X-Result-Count": str(pages * 300)}
        if number < pages:
            headers["Link"] = f'<http://waldur.example.invalid/api/x/?page={number + 1}>; rel="next"'
        return Answer(body=gzip.compress(items.replace("PAGE", str(number)).encode()), headers=headers)

    return script


def test_a_listing_with_too_many_values(stand_in: StartStandIn) -> None:
    item = json.dumps({"uuid": "PAGE", "values": [0] * 200})
    server = stand_in(pages_of(f"[{item}]", 9))
    client = client_at(server.url, bounds=Bounds(listing_values=500))
    with pytest.raises(
        WaldurError, match=r"it goes on after 3 pages with 6\d\d values: the listing is incomplete"
    ):
        list(client.pages("x/"))


READER = """
import resource, sys
from agent.core.bounded_json import TOO_DEEP
from agent.core.errors import WaldurError
from agent.http.client import CHUNK_BYTES
from tests.agent.waldur.clients import client_at
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    list(client_at(sys.argv[1]).pages("x/"))
except WaldurError as error:
    print(error, file=sys.stderr)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize(
    ("items", "pages"),
    [
        pytest.param(lambda: "[" + "{}," * 10_000_000 + "{}]", 1, id="empty objects"),
        pytest.param(lambda: "[" + ",".join(["[" + "{}," * 90_000 + "{}]"] * 100) + "]", 4, id="four pages"),
        pytest.param(lambda: "[" + '{"":{}},' * 4_000_000 + "{}]", 1, id="objects in objects"),
        pytest.param(lambda: "[" * 30_000_000, 1, id="brackets"),
    ],
)
def test_what_is_small_when_packed_takes_little_memory(
    stand_in: StartStandIn, items: Callable[[], str], pages: int
) -> None:
    """30 MB unpacked and less than 100 kB packed. Its objects would be 800 MB."""
    server = stand_in(pages_of(items(), pages))
    done = subprocess.run(
        [sys.executable, "-c", READER, server.url], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert "values, and 1000000 are read" in done.stderr, done.stderr[-500:]
    assert int(done.stdout) < 300
