# SPDX-License-Identifier: MIT
"""STOMP 1.2 over a WebSocket (RabbitMQ's web-stomp) or plain TCP, on stomp.py.

What stomp.py 9 asks for: a new connection object each time (its heart-beats end with the old one); a listener that
never blocks and never raises (either ends the connection); no reconnecting of its own. Queues are named by
`/amq/queue/`: `/queue/` would declare them again, and fail where Waldur gave them other arguments.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import stomp  # type: ignore[import-untyped]
import websocket
from stomp.adapter.ws import WSTransport  # type: ignore[import-untyped]
from stomp.connect import BaseConnection, StompConnection12  # type: ignore[import-untyped]
from stomp.exception import StompException  # type: ignore[import-untyped]
from stomp.protocol import Protocol12  # type: ignore[import-untyped]

from agent.bridge import inbox, tls
from agent.bridge.connection import CONNECT_TIMEOUT_S, Link, LinkFailed, LinkRefused
from agent.bridge.model import Address, Login, Received, Source

log = logging.getLogger(__name__)

HEARTBEATS_MS = (10_000, 10_000)
# Of a heart-beat's period: a connection that is silent for longer is dead.
SILENCE = 2.5
SILENCE_S = SILENCE * HEARTBEATS_MS[1] / 1000
GOODBYE_S = 2.0
# What a listener notes beside receipts.
CONNECTED = "connected"
# UnicodeError: a host that is no name of DNS (`mq..example`).
BROKEN = (StompException, OSError, UnicodeError, websocket.WebSocketException)

# It tells each attempt and failure on its own; we say it once, with what to do.
logging.getLogger("stomp.py").setLevel(logging.CRITICAL)
logging.getLogger("websocket").setLevel(logging.CRITICAL)


class StompLink(Link):
    _ears: _Ears | None = None
    _suspected: Source | None = None
    # Queues that were not there once. They come last: a missing one ends the connection for all.
    _doubtful: frozenset[Source] = frozenset()

    def session(self) -> None:
        ears = self._ears = _Ears(_open(self.login.address, self.login.vhost), self._take)
        try:
            ears.log_in(self.login)
            self._listen(ears)
        except BROKEN as error:
            raise LinkFailed(_words(error)) from error
        finally:
            self._ears = None
            ears.hang_up(patience_s=GOODBYE_S if self.is_over else 0)

    def look_again(self) -> None:
        ears = self._ears
        if ears is not None:
            ears.news.poke()

    def hang_up(self) -> None:
        """The session's own thread ends the connection: the library does not bear it while one is being made."""
        ears = self._ears
        if ears is not None:
            ears.news.leave()

    def _take(self, received: Received) -> None:
        if not self.is_stopping:
            self._inbox.put(received)

    def _listen(self, ears: _Ears) -> None:
        """Until it is over. Raises LinkFailed when the connection ends."""
        while not self.is_over:
            rest = sorted(self._wanted - self._subscribed, key=lambda s: (s in self._doubtful, s.name))
            for source in rest:
                self._subscribe(ears, source)
            if not rest:
                ears.news.wait()
            if ears.news.gone.is_set():
                raise LinkFailed(ears.problem or "the connection ended")

    def _subscribe(self, ears: _Ears, source: Source) -> None:
        """One after the other: a queue that is not there ends the connection, and is then known."""
        if self.is_over:
            return
        ears.subscribe(source, inbox.prefetch(self.sources_in_all))
        if ears.news.is_left:
            return
        if ears.news.gone.is_set():
            self._suspect(source, ears)
        self._suspected = None
        self._doubtful -= {source}
        self._note_subscribed([source])

    def _suspect(self, source: Source, ears: _Ears) -> None:
        """Raises LinkFailed. Over a WebSocket RabbitMQ (3.10) ends the connection without a word when a queue is not
        there: twice at the same queue is taken for that, and once where it was missing before.
        """
        if ears.has_no_queue or self._suspected == source or source in self._doubtful:
            self._suspected = None
            self._doubtful |= {source}
            self._forget([source])
            raise LinkFailed(f"the broker has no queue {source.name}: asking Waldur for it")
        self._suspected = source
        raise LinkFailed(ears.problem or "the connection ended while subscribing")


class _News:
    """What one thread waits for, and others note: words of the broker, and that something has changed. `gone` is set
    when the connection has ended, `is_left` when nobody waits for it any more.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._said: set[str] = set()
        self._is_poked = False
        self.is_left = False
        self.gone = threading.Event()

    def poke(self) -> None:
        with self._changed:
            self._is_poked = True
            self._changed.notify_all()

    def leave(self) -> None:
        """Wait for nothing any more."""
        with self._changed:
            self.is_left = True
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self.gone.set()
            self._changed.notify_all()

    def note(self, said: str) -> None:
        with self._changed:
            self._said.add(said)
            self._changed.notify_all()

    def wait(self) -> None:
        """Until somebody poked, or the connection is gone or not wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_poked or self.is_left or self.gone.is_set())
            self._is_poked = False

    def wait_for(self, said: str) -> None:
        """Until the broker has said it, or the connection is gone. Raises LinkFailed after a while."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: said in self._said or self.is_left or self.gone.is_set(), CONNECT_TIMEOUT_S
            ):
                raise LinkFailed(f"the broker did not answer within {CONNECT_TIMEOUT_S:.0f} s")


class _Ears(stomp.ConnectionListener):  # type: ignore[misc]
    """One connection, and what the broker says over it."""

    def __init__(self, connection: Any, take: Callable[[Received], None]) -> None:
        self._connection = connection
        self._take = take
        self._by_name: dict[str, Source] = {}
        self.news = _News()
        self.problem = ""
        connection.set_listener("ears", self)

    @property
    def has_no_queue(self) -> bool:
        return "not_found" in self.problem.lower() or "no queue" in self.problem.lower()

    def log_in(self, login: Login) -> None:
        """Raises LinkRefused, LinkFailed; what the network says comes as it is."""
        try:
            self._connection.connect(login.user, login.passcode.reveal())
        except (TypeError, AttributeError) as error:
            # stomp.py 9 reads its socket's name after its other thread saw the socket closed.
            raise LinkFailed("the broker hung up before the login") from error
        self.news.wait_for(CONNECTED)
        if self.news.gone.is_set():
            raise LinkRefused(f"the broker refuses the login: {self.problem or 'it hung up'}")

    def subscribe(self, source: Source, prefetch: int) -> None:
        self._by_name[source.name] = source
        headers = {"prefetch-count": str(prefetch), "receipt": source.name}
        place = f"/amq/queue/{source.name}"
        self._connection.subscribe(place, id=source.name, ack="client-individual", headers=headers)
        self.news.wait_for(source.name)

    def hang_up(self, *, patience_s: float) -> None:
        """End the connection; what was sent over it goes out before, within `patience_s`."""
        try:
            if patience_s and not self.news.gone.is_set() and self._connection.is_connected():
                self._connection.disconnect()
                self.news.gone.wait(patience_s)
            self._connection.transport.disconnect_socket()
        except BROKEN as error:
            log.debug("no goodbye: %s", error)
        self.news.end()

    def on_connected(self, frame: Any) -> None:
        self.news.note(CONNECTED)

    def on_receipt(self, frame: Any) -> None:
        self.news.note(str(frame.headers.get("receipt-id")))

    def on_error(self, frame: Any) -> None:
        body = frame.body.decode(errors="replace") if isinstance(frame.body, bytes) else str(frame.body or "")
        self.problem = " ".join(f"{frame.headers.get('message', '')}: {body}".split())[:300]
        self.news.end()  # after an ERROR a connection is over, though the broker may leave it open for a while

    def on_message(self, frame: Any) -> None:
        """In the library's own thread: nothing here may block or raise."""
        source = self._by_name.get(str(frame.headers.get("subscription")))
        if source is not None:
            body = frame.body if isinstance(frame.body, bytes) else str(frame.body or "").encode()
            acknowledge = partial(_acknowledge, self._connection, frame.headers.get("ack"))
            self._take(Received(source, inbox.cut(body), len(body), acknowledge))

    def on_heartbeat_timeout(self) -> None:
        self.problem = f"nothing was heard for {SILENCE_S:.0f} s"
        self.news.end()

    def on_disconnected(self) -> None:
        self.news.end()

    def on_receiver_loop_completed(self, frame: Any) -> None:
        self.news.end()


class _WebSocket(WSTransport):  # type: ignore[misc]
    """The library's transport with our TLS, one attempt, and time limits on every send and receive."""

    def __init__(self, address: Address, vhost: str) -> None:
        super().__init__([(address.host, address.port)], vhost=vhost, ws_path=address.path, auto_decode=False)
        self._address = address

    def attempt_connection(self) -> None:
        """Raises OSError or WebSocketException, where the library tells a log and hides the reason."""
        address = self._address
        self.connection_error = False
        self.current_host_and_port = (address.host, address.port)
        options = {"context": tls.context(address)} if address.tls else {}
        scheme = "wss" if address.tls else "ws"
        self.socket = websocket.create_connection(
            f"{scheme}://{address.host}:{address.port}{address.path}", CONNECT_TIMEOUT_S, sslopt=options
        )
        self.socket.settimeout(SILENCE_S)


class _WebSocketConnection(StompConnection12):  # type: ignore[misc]
    def __init__(self, address: Address, vhost: str) -> None:
        transport = _WebSocket(address, vhost)
        BaseConnection.__init__(self, transport)
        Protocol12.__init__(self, transport, HEARTBEATS_MS, heart_beat_receive_scale=SILENCE)


def _open(address: Address, vhost: str) -> Any:
    if address.path:
        return _WebSocketConnection(address, vhost)
    place = (address.host, address.port)
    connection = StompConnection12(
        [place],
        prefer_localhost=False,
        try_loopback_connect=False,
        reconnect_attempts_max=1,
        timeout=CONNECT_TIMEOUT_S,
        heartbeats=HEARTBEATS_MS,
        vhost=vhost,
        auto_decode=False,
        heart_beat_receive_scale=SILENCE,
    )
    if address.tls:
        connection.set_ssl([place], ca_certs=address.ca_file or None, verify=address.verify)
    return connection


def _acknowledge(connection: Any, tag: Any) -> None:
    """On a connection that is gone it does nothing: the broker delivers the message again."""
    try:
        connection.ack(tag)
    except BROKEN as error:
        log.debug("a message was not acknowledged: %s", error)


def _words(error: BaseException) -> str:
    """The innermost reason: the library's own errors are often without words."""
    cause = error.__cause__ or error.__context__
    text = str(error).strip()
    if not text and cause is not None:
        return _words(cause)
    return text or f"no connection ({type(error).__name__})"
