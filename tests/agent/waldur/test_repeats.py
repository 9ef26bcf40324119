# SPDX-License-Identifier: MIT
"""What is safe to send twice is sent again, after a wait; what is not is sent once."""

from __future__ import annotations

import logging
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from agent.core.errors import WaldurError
from agent.http.client import Timeouts
from agent.waldur import offerings, orders, resources
from agent.waldur.client import WaldurClient
from rig.processes import free_ports
from simulator.server.faults import Fault, FaultKind, throttled
from simulator.server.waldur import SimulatedWaldur
from tests.agent.waldur.clients import QUICK, client_at, client_of
from tests.agent.waldur.conftest import StartStandIn
from tests.agent.waldur.stand_in import Answer, in_turn, says

ONE = {"uuid": "a"}


@pytest.fixture
def order(waldur: SimulatedWaldur) -> str:
    return waldur.place_create_order(waldur.seed.project_uuids[0], "One", limits={"cpu": 1})


FAULTS = {
    **{str(status): Fault(status=status) for status in (429, 500, 502, 503, 504)},
    "reset before": Fault(kind=FaultKind.RESET),
    "reset after": Fault(kind=FaultKind.RESET, carried_out=True),
    "cut off": Fault(kind=FaultKind.TRUNCATE),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_get_is_asked_again(
    waldur: SimulatedWaldur, client: WaldurClient, order: str, fault: Fault
) -> None:
    waldur.inject(fault)
    assert orders.get(client, order).uuid == order
    assert waldur.requests.count() == 2 == client.sent.total()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_repeatable_post_is_sent_again(
    waldur: SimulatedWaldur, client: WaldurClient, order: str, fault: Fault
) -> None:
    waldur.inject(fault)
    resource = waldur.order(order).resource_uuid
    resources.set_backend_id(client, resource, "a_one")
    assert waldur.resource(resource).backend_id == "a_one"
    assert waldur.requests.count("POST *") == 2 == client.sent.total()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_any_other_post_is_sent_once(
    waldur: SimulatedWaldur, client: WaldurClient, order: str, fault: Fault
) -> None:
    waldur.inject(fault)
    with pytest.raises(WaldurError) as caught:
        orders.approve(client, order)
    assert caught.value.retryable
    assert waldur.requests.count("POST *") == 1 == client.sent.total()
    is_approved = waldur.order(order).state.value == "executing"
    assert is_approved == (fault.kind is FaultKind.TRUNCATE or fault.carried_out)


@pytest.mark.parametrize("body", [{"type": "x", "name": "X", "billing_type": "limit"}])
def test_a_component_is_not_created_twice(
    waldur: SimulatedWaldur, client: WaldurClient, body: dict[str, str]
) -> None:
    waldur.inject(Fault(status=503, carried_out=True))
    with pytest.raises(WaldurError, match="503"):
        offerings.create_component(client, body)
    assert [c.type for c in offerings.facts(client).components].count("x") == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 501])
def test_a_refusal_is_not_asked_again(
    waldur: SimulatedWaldur, client: WaldurClient, order: str, status: int
) -> None:
    waldur.inject(Fault(status=status, times=None))
    with pytest.raises(WaldurError):
        orders.get(client, order)
    assert waldur.requests.count() == 1 == client.sent.total()


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_attempts_are_counted(waldur: SimulatedWaldur, attempts: int) -> None:
    waldur.inject(Fault(status=503, times=None))
    client = client_of(waldur, attempts=attempts)
    with pytest.raises(WaldurError, match=r"Waldur answered 503: 502 Bad Gateway") as caught:
        orders.actionable(client)
    assert caught.value.status == 503
    assert waldur.requests.count() == attempts == client.sent.total()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_refuses_connections_is_waited_for(waits: list[float], method: str) -> None:
    """Longer each time: one that restarts refuses for seconds. What was never sent may be sent again."""
    (port,) = free_ports(
        1
    )  # one that has refused all attempts is tried once, by whichever test of this process
    client = client_at(f"http://127.0.0.1:{port}/api/", attempts=5, timeouts=Timeouts(backoff_max_s=1.5))
    with pytest.raises(WaldurError, match="Connection refused"):
        client.get("x/") if method == "GET" else client.post("x/")
    assert client.sent.total() == 5
    for wait_s, least_s in zip(waits, (0.3, 0.6, 1.2, 1.5), strict=True):
        assert least_s <= wait_s <= least_s * 1.25


def test_broken_connections_end_too(waldur: SimulatedWaldur) -> None:
    waldur.inject(Fault(kind=FaultKind.RESET, times=None))
    with pytest.raises(WaldurError, match="Connection aborted: Connection reset by peer") as caught:
        orders.actionable(client_of(waldur, attempts=3))
    assert caught.value.status is None
    assert waldur.requests.count() == 3


def test_a_body_that_is_always_cut_off_is_an_error(
    waldur: SimulatedWaldur, client: WaldurClient, order: str
) -> None:
    waldur.inject(Fault(kind=FaultKind.TRUNCATE, times=None))
    with pytest.raises(WaldurError, match=r"Connection broken: IncompleteRead") as caught:
        orders.get(client, order)
    assert caught.value.retryable
    assert waldur.requests.count() == 4 == client.sent.total()


def test_a_body_shorter_than_announced_is_asked_for_again(stand_in: StartStandIn) -> None:
    server = stand_in(in_turn(Answer(body=b'[{"uuid": "a"}, {"uuid": "b"}]', sent=14), says([ONE])))
    assert list(client_at(server.url, attempts=2).pages("list/")) == [ONE]


def test_a_connection_closed_before_the_answer_is_made_anew(stand_in: StartStandIn) -> None:
    """What a server does whose keep-alive time has run out."""
    server = stand_in(in_turn(says([ONE]), Answer(hang_up=True), says([ONE])))
    client = client_at(server.url, attempts=2)
    assert list(client.pages("list/")) == list(client.pages("list/")) == [ONE]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that are waited for before requests are sent again, by a clock that goes on by them: no test waits.
    The pace that the server has asked for is kept by the same clock.
    """
    waited: list[float] = []
    paced: list[float] = []

    def now_s() -> float:
        return time.monotonic() + sum(waited) + sum(paced)

    for place, slept in (("client", waited), ("pace", paced)):
        clock = SimpleNamespace(sleep=slept.append, monotonic=now_s)
        monkeypatch.setattr(f"agent.http.{place}.time", clock)
    return waited


def test_retry_after_is_waited_for(waldur: SimulatedWaldur, client: WaldurClient, waits: list[float]) -> None:
    waldur.inject(throttled(retry_after_s=7))
    orders.actionable(client)
    assert waits == [7]


@pytest.mark.parametrize("after", ["Fri, 31 Dec 2100 23:59:59 GMT"])
def test_retry_after_is_capped(stand_in: StartStandIn, waits: list[float], after: str) -> None:
    server = stand_in(in_turn(says([], 429, Retry_After=after), says([ONE])))
    client = client_at(server.url, attempts=2, timeouts=Timeouts(retry_after_max_s=9))
    assert list(client.pages("list/")) == [ONE]
    assert waits == [9]


@pytest.mark.parametrize("after", ["soon", "0.5", "-1", "", "0", "Fri, 31 Dec 1999 23:59:59 GMT", "\u00b2"])
def test_retry_after_in_odd_words_means_the_usual_back_off(
    stand_in: StartStandIn, waits: list[float], after: str
) -> None:
    server = stand_in(in_turn(says([], 503, Retry_After=after), says([ONE])))
    client = client_at(server.url, attempts=2)
    assert list(client.pages("list/")) == [ONE]
    assert len(waits) == 1
    assert QUICK.backoff_max_s <= waits[0] <= QUICK.backoff_max_s * 1.25
    assert len(server.asked) == 2


def test_retry_after_makes_no_post_repeatable(stand_in: StartStandIn) -> None:
    server = stand_in(lambda _: says({"detail": "Request was throttled."}, 429, Retry_After="1"))
    with pytest.raises(WaldurError, match=r"429: Request was throttled\."):
        client_at(server.url, attempts=3).post("orders/1/approve_by_provider/")
    assert len(server.asked) == 1


def test_repeats_are_logged_in_one_readable_line_each(
    waldur: SimulatedWaldur, client: WaldurClient, caplog: pytest.LogCaptureFixture
) -> None:
    waldur.inject(Fault(status=502))
    waldur.inject(Fault(kind=FaultKind.RESET))
    with caplog.at_level(logging.WARNING, logger="agent"):
        orders.actionable(client)
    assert [r.getMessage() for r in caplog.records if r.name.startswith("agent")] == [
        "GET /api/marketplace-orders/: answered 502; asked again, attempt 2",
        "GET /api/marketplace-orders/: Connection aborted: Connection reset by peer; asked again, attempt 3",
    ]


@pytest.mark.parametrize(("age_s", "connections"), [(0, 3), (3600, 1)])
def test_a_connection_that_may_have_been_idle_for_long_is_not_used(
    stand_in: StartStandIn, monkeypatch: pytest.MonkeyPatch, age_s: float, connections: int
) -> None:
    """Gunicorn closes it after two seconds; a request that meets that may be lost, and may not be sent again."""
    monkeypatch.setattr("agent.http.client.CONNECTION_AGE_S", age_s)
    server = stand_in(lambda _: says({}))
    client = client_at(server.url)
    for number in range(3):
        client.post(f"marketplace-orders/{number}/approve_by_provider/")
    assert len(server.asked) == 3
    assert len(server.connections()) == connections


def test_a_post_without_an_answer_is_not_sent_again(stand_in: StartStandIn) -> None:
    """Also on a connection that has answered before: it may have been carried out."""
    server = stand_in(in_turn(says({}), Answer(hang_up=True), says({})))
    client = client_at(server.url)
    client.post("marketplace-orders/0/approve_by_provider/")
    with pytest.raises(WaldurError):
        client.post("marketplace-orders/1/approve_by_provider/")
    assert len(server.asked) == 2


def test_a_server_that_no_connection_reaches_is_asked_once_by_all_clients_until_one_does() -> None:
    """Each offering has a client: the log of a dead address is not as long as the list of offerings. What a connection
    reaches is waited for as ever, and who asks once by itself finds nothing out for others.
    """

    def attempts(url: str, count: int = 4) -> int:
        client = client_at(url, attempts=count)
        with pytest.raises(WaldurError, match="no answer"):
            client.get("users/me/")
        return client.sent.total()

    def answer(listening: socket.socket) -> None:
        with listening:
            for line in (b"", b"HTTP/1.1 503 Busy", b"HTTP/1.1 200 OK"):
                with listening.accept()[0] as connection:
                    connection.recv(65536)
                    connection.sendall(line and line + b"\r\nContent-Length: 2\r\n\r\n{}")

    kept = socket.socket()
    kept.bind(("127.0.0.1", 0))  # not listening yet: connections are refused
    url = f"http://127.0.0.1:{kept.getsockname()[1]}/api/"
    assert [attempts(url, count) for count in (1, 4, 4, 4)] == [1, 4, 1, 1]
    kept.listen()
    answering = threading.Thread(target=answer, args=[kept], daemon=True)
    answering.start()
    assert client_at(url, attempts=4).get("users/me/") == {}
    answering.join()
    assert attempts(url) == 4
