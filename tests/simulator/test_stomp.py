# SPDX-License-Identifier: MIT
"""The broker inside the simulated Waldur, as a client of STOMP over a WebSocket meets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import websocket
from stomp.utils import parse_frame

from simulator.server.waldur import SimulatedWaldur

pytestmark = pytest.mark.events


class Client:
    """One connection; each frame comes as a message of its own."""

    def __init__(self, waldur: SimulatedWaldur, passcode: str = "secret") -> None:
        self._socket = websocket.create_connection(f"ws{waldur.root_url[4:]}/rmqws-stomp", timeout=600)
        self.first = self.ask("CONNECT", host="v", login="l", passcode=passcode)

    def ask(self, command: str, **headers: str) -> Any:
        """Send a frame, and return the next one that comes."""
        self.send(command, **headers)
        return self.next()

    def send(self, command: str, **headers: str) -> None:
        lines = [command, *(f"{name.replace('_', '-')}:{value}" for name, value in headers.items())]
        self._socket.send("\n".join(lines) + "\n\n\0")

    def next(self) -> Any:
        return parse_frame(self._socket.recv().rstrip("\0").encode())

    def subscribe(self, queue: str, **headers: str) -> Any:
        return self.ask("SUBSCRIBE", id="s", destination=f"/amq/queue/{queue}", receipt="r", **headers)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur() as started:
        started.stomp.add_login("v", "l", "secret")
        for queue in ("a", "b"):
            started.stomp.add_queue("v", queue)
        yield started


def test_only_a_login_with_its_passcode_and_a_queue_that_was_made_are_there(waldur: SimulatedWaldur) -> None:
    for passcode in ("", "wrong"):
        refused = Client(waldur, passcode)
        assert (refused.first.cmd, refused.first.headers["message"]) == ("ERROR", "Bad CONNECT")
    reader = Client(waldur)
    assert (reader.first.cmd, reader.first.headers["heart-beat"]) == ("CONNECTED", "10000,10000")
    assert reader.subscribe("other").headers["message"] == "not_found"
    for command, prefetch in (("SEND", "1"), ("SUBSCRIBE", "many")):
        wrong = Client(waldur)
        said = wrong.ask(command, id="s", destination="/amq/queue/a", prefetch_count=prefetch)
        assert said.cmd == "ERROR"
        with suppress(websocket.WebSocketException):
            assert wrong._socket.recv() == "", "a connection is over after an error"


def test_what_is_not_acknowledged_goes_to_the_next_reader_in_its_order(waldur: SimulatedWaldur) -> None:
    for number in range(3):
        waldur.stomp.publish("v", "a", {"n": number})
    first, second = Client(waldur), Client(waldur)
    assert first.subscribe("a", prefetch_count="2").cmd == "RECEIPT"
    taken = [first.next() for _ in range(2)]
    assert [frame.body for frame in taken] == [b'{"n": 0}', b'{"n": 1}']
    assert second.subscribe("a").cmd == "RECEIPT"
    assert second.next().body == b'{"n": 2}', "the first reader has as many as it wants"
    first.send("ACK", id=taken[0].headers["ack"])
    first.ask("DISCONNECT", receipt="bye")
    assert second.next().body == b'{"n": 1}'
    first.close()
    second.close()


def test_a_negative_acknowledgement_puts_a_message_back(waldur: SimulatedWaldur) -> None:
    waldur.stomp.publish("v", "b", {"n": 0})
    reader = Client(waldur)
    reader.subscribe("b", prefetch_count="1")
    assert reader.ask("NACK", id=reader.next().headers["ack"]).body == b'{"n": 0}'
    reader.close()
