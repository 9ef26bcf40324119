# SPDX-License-Identifier: MIT
"""What the bridge takes from paho without being offered it. A release that moves it fails here."""

from __future__ import annotations

import inspect

import pytest
from paho.mqtt import client

from agent.bridge.mqtt import PACKET_AT_MOST, _BoundedClient

pytestmark = pytest.mark.events


def test_everything_of_a_packet_is_read_by_the_method_that_is_replaced() -> None:
    """agent.bridge.mqtt: `_sock_recv`."""
    assert list(inspect.signature(client.Client._sock_recv).parameters) == ["self", "bufsize"]
    source = inspect.getsource(client.Client._packet_read)
    assert (source.count("self._sock_recv("), source.count(".recv(")) == (3, 0)
    assert "self._sock.recv(" in inspect.getsource(client.Client._sock_recv)


def test_a_frame_of_a_websocket_is_kept_under_this_name() -> None:
    """agent.bridge.mqtt: `_readbuffer`."""
    assert "self._readbuffer.extend(" in inspect.getsource(client._WebsocketWrapper)


class Connected:
    """A WebSocket that has received a frame."""

    def __init__(self, kept: int) -> None:
        self._readbuffer = bytearray(kept)

    def recv(self, size: int) -> bytes:
        return bytes(size)

    def close(self) -> None:
        """The client closes what it has when it goes."""


@pytest.mark.parametrize(("asked", "kept"), [(PACKET_AT_MOST + 1, 0), (1, PACKET_AT_MOST + 1)])
def test_no_packet_is_read_that_is_larger_than_a_message(asked: int, kept: int) -> None:
    made = _BoundedClient(client.CallbackAPIVersion.VERSION2)
    made._sock = Connected(0)  # type: ignore[assignment]
    assert made._sock_recv(PACKET_AT_MOST) == bytes(PACKET_AT_MOST) and not made.has_refused
    made._sock = Connected(kept)  # type: ignore[assignment]
    with pytest.raises(ConnectionError, match="a packet of"):
        made._sock_recv(asked)
    assert made.has_refused
