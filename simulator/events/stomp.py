# SPDX-License-Identifier: MIT
"""A broker inside the simulated Waldur's own server: STOMP 1.2 over a WebSocket at the path of RabbitMQ's web-stomp,
with queues in memory.

As with RabbitMQ, a login belongs to one virtual host, a queue must have been made, and what a connection was handed and
has not acknowledged waits again when it ends, before the rest. Simpler than there: messages do not expire, and a silent
connection stays open.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field

from stomp.utils import Frame, convert_frame, parse_frame  # type: ignore[import-untyped]
from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from simulator.events.broker import QUEUE_LENGTH, BrokerFailed
from simulator.world.records import JsonObject

PATH = "/rmqws-stomp"
# A queue that exists already; `/queue/` would declare it, too, and is the same here.
DESTINATIONS = ("/amq/queue/", "/queue/")
HEARTBEAT_MS = 10_000
# Of a reader that names none.
PREFETCH = 1000


class StompBroker:
    """Logins, queues and the connections that read them. `publish` and `close` may be called in any thread, the rest
    by the server.
    """

    has_topics = False

    def __init__(self) -> None:
        # By virtual host and name, both.
        self._passcodes: dict[tuple[str, str], str] = {}
        self._queues: dict[tuple[str, str], deque[str]] = {}
        self._connections: list[StompHandler] = []

    def add_login(self, vhost: str, login: str, passcode: str) -> None:
        self._passcodes[vhost, login] = passcode

    def add_queue(self, vhost: str, name: str) -> None:
        self._queues.setdefault((vhost, name), deque())

    def publish(self, vhost: str, name: str, payload: JsonObject) -> None:
        waiting = self._queues.get((vhost, name))
        if waiting is None or len(waiting) >= QUEUE_LENGTH:
            raise BrokerFailed(f"the queue {name} " + ("does not exist" if waiting is None else "is full"))
        waiting.append(json.dumps(payload))
        for connection in tuple(self._connections):
            connection.loop.add_callback(connection.deliver)

    def close(self) -> None:
        """Hang up on everybody."""
        for connection in tuple(self._connections):
            connection.loop.add_callback(connection.close)

    def lets_in(self, vhost: str, login: str, passcode: str) -> bool:
        return self._passcodes.get((vhost, login), "") == passcode != ""

    def queue(self, vhost: str, name: str) -> deque[str] | None:
        return self._queues.get((vhost, name))

    def opened(self, connection: StompHandler) -> None:
        self._connections.append(connection)

    def closed(self, connection: StompHandler) -> None:
        """Forget a connection; another one takes what it has not acknowledged."""
        self._connections.remove(connection)
        for other in self._connections:
            other.deliver()


@dataclass
class _Reader:
    """A subscription."""

    destination: str
    waiting: deque[str]
    prefetch: int
    # Messages that were handed out and not acknowledged, by their tag.
    unacknowledged: dict[str, str] = field(default_factory=dict)

    def put_back(self) -> None:
        self.waiting.extendleft(reversed(self.unacknowledged.values()))
        self.unacknowledged.clear()


class StompHandler(WebSocketHandler):
    """One connection."""

    def initialize(self, broker: StompBroker) -> None:
        self._broker = broker
        self._vhost: str | None = None
        self._readers: dict[str, _Reader] = {}
        self._tags = itertools.count(1)
        self._heartbeat = PeriodicCallback(lambda: self._write(b"\n"), HEARTBEAT_MS)
        self.loop = IOLoop.current()

    def open(self, *_: str, **__: str) -> None:
        self._broker.opened(self)

    def on_close(self) -> None:
        self._heartbeat.stop()
        for reader in self._readers.values():
            reader.put_back()
        self._readers.clear()
        self._broker.closed(self)

    def on_message(self, message: str | bytes) -> None:
        data = message.encode() if isinstance(message, str) else message
        try:
            for part in data.split(b"\0"):
                frame = parse_frame(part)
                if frame is not None:  # a heart-beat is none
                    self._take(frame)
        except ValueError as error:
            self._refuse("malformed", str(error))

    def deliver(self) -> None:
        """Hand out what waits for the readers of this connection, as far as their prefetch counts go."""
        for name, reader in self._readers.items():
            while reader.waiting and len(reader.unacknowledged) < reader.prefetch:
                body, tag = reader.waiting.popleft(), str(next(self._tags))
                reader.unacknowledged[tag] = body
                headers = {
                    "subscription": name,
                    "message-id": tag,
                    "ack": tag,
                    "destination": reader.destination,
                }
                self._send("MESSAGE", {**headers, "content-type": "application/json"}, body)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        raise NotImplementedError

    def _take(self, frame: Frame) -> None:
        headers = {name: str(value) for name, value in frame.headers.items()}
        if frame.cmd in ("CONNECT", "STOMP"):
            self._log_in(headers)
        elif self._vhost is None:
            self._refuse("not logged in", f"{frame.cmd} came before CONNECT")
        elif frame.cmd == "SUBSCRIBE":
            self._subscribe(self._vhost, headers)
        elif frame.cmd == "UNSUBSCRIBE":
            if reader := self._readers.pop(headers.get("id", ""), None):
                reader.put_back()
        elif frame.cmd in ("ACK", "NACK"):
            self._settle(headers.get("id", ""), is_done=frame.cmd == "ACK")
        elif frame.cmd != "DISCONNECT":
            self._refuse("unsupported", f"this broker takes no {frame.cmd}")
        if "receipt" in headers:
            self._send("RECEIPT", {"receipt-id": headers["receipt"]})
        if frame.cmd == "DISCONNECT":
            self.close()

    def _log_in(self, headers: dict[str, str]) -> None:
        vhost, login = headers.get("host", ""), headers.get("login", "")
        if not self._broker.lets_in(vhost, login, headers.get("passcode", "")):
            self._refuse("Bad CONNECT", f"access refused for user {login!r}")
            return
        self._vhost = vhost
        self._heartbeat.start()
        self._send("CONNECTED", {"version": "1.2", "heart-beat": f"{HEARTBEAT_MS},{HEARTBEAT_MS}"})

    def _subscribe(self, vhost: str, headers: dict[str, str]) -> None:
        destination = headers.get("destination", "")
        start = next((each for each in DESTINATIONS if destination.startswith(each)), destination)
        waiting = self._broker.queue(vhost, destination.removeprefix(start))
        if waiting is None:
            self._refuse("not_found", f"no queue {destination} in vhost {vhost!r}")
            return
        prefetch = int(headers.get("prefetch-count", PREFETCH))
        self._readers[headers.get("id", "")] = _Reader(destination, waiting, prefetch)
        self.loop.add_callback(self.deliver)  # after the receipt

    def _settle(self, tag: str, *, is_done: bool) -> None:
        for reader in self._readers.values():
            body = reader.unacknowledged.pop(tag, None)
            if body is not None and not is_done:
                reader.waiting.appendleft(body)
        self.deliver()

    def _refuse(self, message: str, text: str) -> None:
        """Send an error, after which a connection is over."""
        self._send("ERROR", {"message": message}, text)
        self.close()

    def _send(self, command: str, headers: dict[str, str], body: str = "") -> None:
        self._write(b"".join(convert_frame(Frame(command, headers, body))))

    def _write(self, data: bytes) -> None:
        with suppress(WebSocketClosedError):  # `on_close` follows
            self.write_message(data)
