# SPDX-License-Identifier: MIT
"""How requests travel: time-outs, TLS, proxies, pooled connections, and the headers that say who asks."""

from __future__ import annotations

import socket
import threading
import time
import warnings
from typing import Any

import pytest

from agent.core.errors import ConfigError, WaldurError
from agent.http.client import Timeouts
from agent.http.connections import POOL_SIZE
from agent.waldur import orders, pool, resources
from agent.waldur.client import WaldurClient
from simulator.server.waldur import SimulatedWaldur
from tests.agent.waldur.clients import OFFERING, TOKEN, USER_AGENT, client_at, client_of
from tests.agent.waldur.conftest import StartStandIn
from tests.agent.waldur.stand_in import Answer, in_turn, says

ONE = {"uuid": "a"}
NO_SERVER = "http://waldur.example.invalid/api/"


def test_the_defaults_are_what_operators_read_of() -> None:
    assert Timeouts() == Timeouts(connect_s=5, read_s=40, backoff_max_s=8, retry_after_max_s=30)


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_answer_that_does_not_come(stand_in: StartStandIn, attempts: int) -> None:
    server = stand_in(lambda _: Answer(wait=True))
    client = client_at(server.url, attempts=attempts, timeouts=Timeouts(read_s=0.2))
    with pytest.raises(WaldurError, match=r"Read timed out\. \(read timeout=0\.2\)") as caught:
        client.get("plans/1/")
    assert (caught.value.status, caught.value.retryable) == (None, True)
    assert client.sent.total() == attempts >= len(server.asked)


def test_an_answer_that_does_not_come_to_a_post_is_not_asked_for_again(stand_in: StartStandIn) -> None:
    server = stand_in(lambda _: Answer(wait=True))
    client = client_at(server.url, attempts=3, timeouts=Timeouts(read_s=0.2))
    with pytest.raises(WaldurError, match="Read timed out"):
        client.post("orders/1/approve_by_provider/")
    assert client.sent.total() == 1 >= len(server.asked)


def test_a_connection_that_is_not_made() -> None:
    """A full queue of connections: the system drops what comes, as a firewall does."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/api/"
        with pytest.raises(WaldurError, match=r"timed out\. \(connect timeout=0\.2\)"):
            client_at(url, timeouts=Timeouts(connect_s=0.2, read_s=5)).get("plans/1/")


def test_a_self_signed_server_is_refused(stand_in: StartStandIn, certificate: str) -> None:
    server = stand_in(lambda _: says([ONE]), certificate=certificate)
    with pytest.raises(WaldurError, match="certificate verify failed") as caught:
        list(client_at(server.url).pages("list/"))
    assert "name its file in the variable REQUESTS_CA_BUNDLE" in str(caught.value)
    assert server.asked == []


def test_without_verification_it_is_accepted_whatever_the_environment_says(
    stand_in: StartStandIn, certificate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt")
    server = stand_in(lambda _: says([ONE]), certificate=certificate)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(client_at(server.url, verify_ssl=False).pages("list/")) == [ONE]


def test_a_private_ca_from_the_environment(
    stand_in: StartStandIn, certificate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certificate)
    server = stand_in(lambda _: says([ONE]), certificate=certificate)
    assert list(client_at(server.url).pages("list/")) == [ONE]


def test_a_ca_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/bundle.pem")
    with pytest.raises(WaldurError, match=r"TLS CA certificate bundle.*/no/such/bundle\.pem"):
        client_at("https://127.0.0.1:1/api/").get("plans/1/")


def test_the_configured_proxy_is_used_and_wins_over_the_environment(
    stand_in: StartStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, other = stand_in(lambda _: says([ONE])), stand_in(lambda _: says([]))
    monkeypatch.setenv("HTTP_PROXY", other.root)
    monkeypatch.setenv("NO_PROXY", "waldur.example.invalid")
    assert list(client_at(NO_SERVER, proxy=proxy.root).pages("list/")) == [ONE]
    assert [asked.target.partition("?")[0] for asked in proxy.asked] == [f"{NO_SERVER}list/"]
    assert other.asked == []


def test_a_proxy_of_the_environment_is_used_where_none_is_configured(
    stand_in: StartStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = stand_in(lambda _: says([ONE]))
    monkeypatch.setenv("HTTP_PROXY", proxy.root)
    assert list(client_at(NO_SERVER).pages("list/")) == [ONE]


def test_a_password_of_the_proxy_goes_to_the_proxy_only(stand_in: StartStandIn) -> None:
    proxy = stand_in(lambda _: says([ONE]))
    address = f"http://user:pr0xy-pass@127.0.0.1:{proxy.port}"
    assert list(client_at(NO_SERVER, proxy=address).pages("list/")) == [ONE]
    assert proxy.asked[0].headers["Proxy-Authorization"].startswith("Basic ")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_refuses(stand_in: StartStandIn, scheme: str) -> None:
    proxy = stand_in(lambda _: Answer(status=407, body=b"", headers={}))
    client = client_at(f"{scheme}://waldur.example.invalid/api/", proxy=proxy.root)
    with pytest.raises(WaldurError, match="407"):
        client.get("plans/1/")


def test_a_proxy_that_is_away_is_named_as_the_cause() -> None:
    client = client_at(NO_SERVER, proxy="http://user:pr0xy-pass@127.0.0.1:1")
    with pytest.raises(WaldurError, match="Check global_proxy") as caught:
        client.get("plans/1/")
    assert "pr0xy-pass" not in str(caught.value)
    assert "Connection refused" in str(caught.value)


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ("ftp://user:pr0xy-pass@proxy", "begins with one of http, https, socks4"),
        ("http://user:pr0xy-pass@", "not a proxy's URL"),
        ("http://user:pr0xy-pass@proxy:port", "is not a URL"),
        ("http://user:pr0xy-pass@[proxy", "is not a URL"),
    ],
)
def test_a_proxy_that_cannot_be_one(proxy: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        client_at(NO_SERVER, proxy=proxy)
    assert "pr0xy-pass" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_every_request_says_who_asks(stand_in: StartStandIn) -> None:
    server = stand_in(lambda _: says([]))
    client = client_at(server.url)
    list(client.pages("list/"))
    client.post("thing/", {"a": 1}, repeatable=True)
    client.post("thing/")
    for asked in server.asked:
        assert asked.headers["User-Agent"] == USER_AGENT
        assert asked.headers["Authorization"] == f"Token {TOKEN}"
        assert asked.headers["Accept"] == "application/json"
    assert [asked.body for asked in server.asked] == [b"", b'{"a": 1}', b"{}"]


@pytest.mark.parametrize("age", ["2024", "8.0", "8.1"])
def test_a_pass_makes_waldur_show_the_integration_as_active(start: Any, age: str) -> None:
    waldur: SimulatedWaldur = start(age)
    staff = client_of(waldur, username="staff", user_agent="a browser")
    statuses = "marketplace-integration-statuses/"
    assert list(staff.pages(statuses)) == []
    orders.actionable(client_of(waldur, user_agent="curl"))
    assert list(staff.pages(statuses)) == []
    orders.actionable(client_of(waldur))
    listed = list(staff.pages(statuses))
    assert [row["status"] for row in listed] == ["Active"] * len(listed)
    # In 2024 a status does not say which agent it is of.
    assert "Order processing" in {row.get("agent_type", "Order processing") for row in listed}


def test_cookies_of_a_balancer_are_sent_back_until_it_takes_them_away(stand_in: StartStandIn) -> None:
    given = [says(ONE, Set_Cookie=f"node=a; Max-Age={age}; Path=/api/") for age in (60, 60, 0, 60)]
    server = stand_in(in_turn(*given))
    client = client_at(server.url)
    for _ in given:
        client.get("plans/1/")
    assert [asked.headers.get("Cookie") for asked in server.asked] == [None, "node=a", "node=a", None]


def test_many_requests_share_few_connections(stand_in: StartStandIn) -> None:
    at_once = threading.Semaphore(POOL_SIZE)

    def script(_: Any) -> Answer:
        assert at_once.acquire(blocking=False), "more requests at once than the pool has connections"
        time.sleep(0.005)
        at_once.release()
        return says({"uuid": "a"})

    server = stand_in(script)
    client = client_at(server.url)
    answers = pool.each(range(50), lambda number: client.get(f"plans/{number}/"))
    assert [answers[number] for number in range(50)] == [ONE] * 50
    assert len(server.asked) == 50 == client.sent.total()
    assert len(server.connections()) <= POOL_SIZE


def test_one_failure_among_many_stays_alone(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    project = waldur.seed.project_uuids[0]
    uuids = [waldur.place_create_order(project, f"Order {n}", limits={"cpu": 1}) for n in range(10)]
    wanted = [waldur.order(uuid).resource_uuid for uuid in uuids]
    missing = "0" * 31 + "1"
    answers = pool.each([*wanted, missing, *wanted], lambda uuid: resources.get(client, uuid))
    assert list(answers) == [*wanted, missing]
    assert isinstance(answers[missing], WaldurError)
    assert all(not isinstance(answers[uuid], WaldurError) for uuid in wanted)
    assert client.sent == {"GET /api/marketplace-provider-resources/{uuid}/": 11}


@pytest.mark.parametrize("keys", [(), ("one",)])
def test_none_or_one_needs_no_threads(keys: tuple[str, ...]) -> None:
    assert pool.each(keys, lambda _: threading.current_thread().name) == dict.fromkeys(keys, "MainThread")


def test_uuids_are_compared_in_hex(stand_in: StartStandIn) -> None:
    """A server that writes dashes does not make a stranger of our own resource."""
    dashed = "e21a0f00-30b4-47de-b63b-edf69db6742e"
    server = stand_in(in_turn(says([{"uuid": dashed, "state": "OK"}])))
    assert [r.uuid for r in resources.holders_of(client_at(server.url), "a_one")] == [OFFERING]
