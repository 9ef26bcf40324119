# SPDX-License-Identifier: MIT
"""STOMP 1.2 over a WebSocket (RabbitMQ's web-stomp) or plain TCP, on stomp.py.

What stomp.py 9 asks for: a new connection object each time (its heart-beats end with the old one); a listener that
never blocks and never raises (either ends the connection); no reconnecting of its own. Queues are named by
`/amq/queue/`: `/queue/` would declare them again, and fail where Waldur gave them other arguments.
"""

from __future__ import annotations

import logging
import selectors
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
from stomp.transport import PollableQueue, Transport  # type: ignore[import-untyped]

from agent.bridge import frames, inbox, proxy, tls
from agent.bridge.connection import CONNECT_TIMEOUT_S, BrokerConnection, ConnectionFailed, LoginRefused
from agent.bridge.model import Address, Login, Received, Source

log = logging.getLogger(__name__)

HEARTBEATS_MS = (10_000, 10_000)
# Of a heart-beat's period: a connection that is silent for longer is dead.
SILENCE = 2.5
SILENCE_S = SILENCE * HEARTBEATS_MS[1] / 1000
GOODBYE_S = 2.0
# Of a WebSocket's frame, read at once.
PIECE_BYTES = 2**16
# The answer to a login; answers to subscriptions are receipts with the name of the source.
CONNECTED = "connected"
# UnicodeError: a host that is no name of DNS (`mq..example`).
BROKEN = (StompException, OSError, UnicodeError, websocket.WebSocketException)

# The libraries log each attempt and failure on their own; we log it once, with what to do.
logging.getLogger("stomp.py").setLevel(logging.CRITICAL)
logging.getLogger("websocket").setLevel(logging.CRITICAL)


class StompConnection(BrokerConnection):
    _listener: _Listener | None = None
    # The queue at which the connection ended last time, perhaps because it is not there.
    _suspected: Source | None = None
    # Queues that were not there once. They come last: a missing one ends the connection for all.
    _doubtful: frozenset[Source] = frozenset()

    def session(self) -> None:
        connection = _new_connection(self.login.address, self.login.vhost)
        listener = self._listener = _Listener(connection, self._receive)
        try:
            listener.log_in(self.login)
            while not self.should_end:
                missing = sorted(self.subscriptions.missing, key=lambda s: (s in self._doubtful, s.name))
                for source in missing:
                    if not self.should_end:
                        self._subscribe(listener, source)
                if not missing:
                    listener.events.wait_for_change()
                if listener.events.ended.is_set():
                    raise ConnectionFailed(listener.problem or "the connection ended")
        except BROKEN as error:
            raise ConnectionFailed(_reason(error)) from error
        finally:
            self._listener = None
            listener.disconnect(timeout_s=GOODBYE_S if self.should_end else 0)

    def update_subscriptions(self) -> None:
        listener = self._listener
        if listener is not None:
            listener.events.note_change()

    def disconnect(self) -> None:
        """Have the session's own thread disconnect: the library fails where one is being made."""
        listener = self._listener
        if listener is not None:
            listener.events.stop_waiting()

    def _receive(self, received: Received) -> None:
        if not self.is_stopping:
            self._inbox.put(received)

    def _subscribe(self, listener: _Listener, source: Source) -> None:
        """Subscribe to one source and wait for the answer: a queue that is not there ends the connection, and is then
        known. Raises ConnectionFailed.

        Over a WebSocket RabbitMQ (3.10) ends the connection without a word when a queue is not there: twice at the
        same queue is taken for that, and once where it was missing before.
        """
        listener.subscribe(source, inbox.prefetch(self.total_sources))
        if listener.events.is_stopped:
            return
        if listener.events.ended.is_set():
            if listener.has_no_queue or self._suspected == source or source in self._doubtful:
                self._suspected = None
                self._doubtful |= {source}
                self._report_lost([source])
                raise ConnectionFailed(f"the broker has no queue {source.name}: asking Waldur for it")
            self._suspected = source
            raise ConnectionFailed(listener.problem or "the connection ended while subscribing")
        self._suspected = None
        self._doubtful -= {source}
        self.subscriptions.note_subscribed([source])


class _ConnectionEvents:
    """What the session's thread waits for, and other threads note: answers of the broker, a change of what is wanted,
    the end of the connection (`ended`), and that the session is to stop waiting (`is_stopped`).
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._answers: set[str] = set()
        self._is_changed = False
        self.is_stopped = False
        self.ended = threading.Event()

    def note_change(self) -> None:
        with self._condition:
            self._is_changed = True
            self._condition.notify_all()

    def note_answer(self, answer: str) -> None:
        with self._condition:
            self._answers.add(answer)
            self._condition.notify_all()

    def note_end(self) -> None:
        with self._condition:
            self.ended.set()
            self._condition.notify_all()

    def stop_waiting(self) -> None:
        with self._condition:
            self.is_stopped = True
            self._condition.notify_all()

    def wait_for_change(self) -> None:
        """Wait until something changed, the connection has ended, or the session is to stop waiting."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_changed or self.is_stopped or self.ended.is_set())
            self._is_changed = False

    def wait_for_answer(self, answer: str) -> None:
        """Wait until the broker gave this answer, or as above. Raises ConnectionFailed after CONNECT_TIMEOUT_S."""
        with self._condition:
            if not self._condition.wait_for(
                lambda: answer in self._answers or self.is_stopped or self.ended.is_set(), CONNECT_TIMEOUT_S
            ):
                raise ConnectionFailed(f"the broker did not answer within {CONNECT_TIMEOUT_S:.0f} s")


class _Listener(stomp.ConnectionListener):  # type: ignore[misc]
    """One connection of the library, and what the broker sends over it."""

    def __init__(self, connection: Any, receive: Callable[[Received], None]) -> None:
        self._connection = connection
        self._receive = receive
        self._source_by_name: dict[str, Source] = {}
        self.events = _ConnectionEvents()
        self.problem = ""
        connection.set_listener("bridge", self)

    @property
    def has_no_queue(self) -> bool:
        return "not_found" in self.problem.lower() or "no queue" in self.problem.lower()

    def log_in(self, login: Login) -> None:
        """Log in. Raises LoginRefused, ConnectionFailed; errors of the network come as they are."""
        try:
            self._connection.connect(login.user, login.passcode.reveal())
        except (TypeError, AttributeError) as error:
            # stomp.py 9 reads its socket's name after its other thread saw the socket closed.
            raise ConnectionFailed("the broker hung up before the login") from error
        self.events.wait_for_answer(CONNECTED)
        if self.events.ended.is_set():
            raise LoginRefused(f"the broker refuses the login: {self.problem or 'it hung up'}")

    def subscribe(self, source: Source, prefetch: int) -> None:
        """Subscribe and wait for the receipt, or for the end of the connection."""
        self._source_by_name[source.name] = source
        headers = {"prefetch-count": str(prefetch), "receipt": source.name}
        destination = f"/amq/queue/{source.name}"
        self._connection.subscribe(destination, id=source.name, ack="client-individual", headers=headers)
        self.events.wait_for_answer(source.name)

    def disconnect(self, *, timeout_s: float) -> None:
        """End the connection; what was sent over it goes out before, within `timeout_s`."""
        try:
            if timeout_s and not self.events.ended.is_set() and self._connection.is_connected():
                self._connection.disconnect()
                self.events.ended.wait(timeout_s)
            self._connection.transport.disconnect_socket()
        except BROKEN as error:
            log.debug("could not disconnect properly: %s", error)
        self.events.note_end()

    def on_connected(self, frame: Any) -> None:
        self.events.note_answer(CONNECTED)

    def on_receipt(self, frame: Any) -> None:
        self.events.note_answer(str(frame.headers.get("receipt-id")))

    def on_error(self, frame: Any) -> None:
        body = frame.body.decode(errors="replace") if isinstance(frame.body, bytes) else str(frame.body or "")
        self.problem = " ".join(f"{frame.headers.get('message', '')}: {body}".split())[:300]
        self.events.note_end()  # after an ERROR a connection is over, though the broker may leave it open for a while

    def on_message(self, frame: Any) -> None:
        """Put a message into the inbox. Runs in the library's own thread: nothing here may block or raise."""
        source = self._source_by_name.get(str(frame.headers.get("subscription")))
        if source is not None:
            body = frame.body if isinstance(frame.body, bytes) else str(frame.body or "").encode()
            acknowledge = partial(self._acknowledge, frame.headers.get("ack"))
            size = str(frame.headers.get(frames.SIZE))
            is_cut = len(body) == frames.BODY_AT_MOST and size.isdecimal() and len(size) < frames.BODY_AT_MOST
            self._receive(
                Received(source, inbox.cut(body), int(size[:18]) if is_cut else len(body), acknowledge)
            )

    def _acknowledge(self, tag: Any) -> None:
        try:
            self._connection.ack(tag)
        except BROKEN as error:
            log.debug("a message was not acknowledged: %s", error)

    def on_heartbeat_timeout(self) -> None:
        self.problem = f"nothing was heard for {SILENCE_S:.0f} s"
        self.events.note_end()

    def on_disconnected(self) -> None:
        self.events.note_end()

    def on_receiver_loop_completed(self, frame: Any) -> None:
        self.events.note_end()


class _WholeFrames:
    """Before each transport of the library: it sees whole frames only, none of them larger than a message may be."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._frames = frames.Frames()

    def receive(self) -> Any:
        while chunk := super().receive():  # type: ignore[misc]
            if found := self._frames.whole(chunk):
                return found
        return chunk


class _PiecewiseSocket(websocket.WebSocket):
    """Hands on what comes in pieces, where the library would keep a message of any size until its end. To be used with
    `fire_cont_frame`. The parts of `frame_buffer` that are used have no underscore, and no documentation.
    """

    _left_bytes = 0
    _opcode = websocket.ABNF.OPCODE_CONT
    _is_last = 0

    def recv_frame(self) -> websocket.ABNF:
        buffer = self.frame_buffer
        if not self._left_bytes:
            buffer.recv_header()
            buffer.recv_length()
            self._is_last, _, _, _, self._opcode, is_masked, _ = buffer.header or (0,) * 7
            self._left_bytes = buffer.length or 0
            buffer.clear()
            if is_masked:
                raise websocket.WebSocketProtocolException("a frame of the broker's is masked")
        piece = buffer.recv_strict(min(self._left_bytes, PIECE_BYTES))
        self._left_bytes -= len(piece)
        frame = websocket.ABNF(0 if self._left_bytes else self._is_last, 0, 0, 0, self._opcode, 0, piece)
        frame.validate(skip_utf8_validation=True)
        self._opcode = websocket.ABNF.OPCODE_CONT
        return frame


class _WebSocket(_WholeFrames, WSTransport):  # type: ignore[misc]
    """The library's transport with our TLS, one attempt, and time limits on every send and receive."""

    def __init__(self, address: Address, vhost: str) -> None:
        super().__init__([(address.host, address.port)], vhost=vhost, ws_path=address.path, auto_decode=False)
        self._address = address

    def attempt_connection(self) -> None:
        """Connect. Raises OSError or WebSocketException, where the library writes a log line and hides the reason."""
        address = self._address
        self.connection_error = False
        self.current_host_and_port = (address.host, address.port)
        options = {"context": tls.context(address)} if address.tls else {}
        scheme = "wss" if address.tls else "ws"
        via = proxy.proxy_of(address)
        self.socket = websocket.create_connection(
            f"{scheme}://{address.host}:{address.port}{address.path}",
            CONNECT_TIMEOUT_S,
            sslopt=options,
            socket=proxy.connected(address, via) if via else None,
            class_=_PiecewiseSocket,
            fire_cont_frame=True,
            skip_utf8_validation=True,
        )
        self.socket.settimeout(SILENCE_S)


class _Tcp(_WholeFrames, Transport):  # type: ignore[misc]
    pass


class _Tunnel(_Tcp):
    """The library's transport over TCP through a proxy: one attempt, and errors as they are."""

    def __init__(self, address: Address, via: proxy.Proxy, vhost: str) -> None:
        super().__init__([(address.host, address.port)], vhost=vhost, auto_decode=False)
        self._address = address
        self._via = via

    def attempt_connection(self) -> None:
        """Connect through the proxy. Raises OSError, ConnectionFailed."""
        address = self._address
        self.connection_error = False
        self.current_host_and_port = (address.host, address.port)
        made = proxy.connected(address, self._via)
        if address.tls:
            # As the library does: two threads must not wait in one TLS connection.
            self.send_queue = PollableQueue()
            self.sel = selectors.DefaultSelector()
            self.sel.register(self.send_queue, selectors.EVENT_READ)
            self.sel.register(made, selectors.EVENT_READ)
            self.blocking = False
        made.setblocking(self.blocking)
        self.socket = made


class _Connection(StompConnection12):  # type: ignore[misc]
    """The library's connection over a transport of ours."""

    def __init__(self, transport: Any) -> None:
        BaseConnection.__init__(self, transport)
        Protocol12.__init__(self, transport, HEARTBEATS_MS, heart_beat_receive_scale=SILENCE)


def _new_connection(address: Address, vhost: str) -> Any:
    """Return a connection of the library that is not connected yet."""
    if address.path:
        return _Connection(_WebSocket(address, vhost))
    if via := proxy.proxy_of(address):
        return _Connection(_Tunnel(address, via, vhost))
    place = (address.host, address.port)
    connection = _Connection(
        _Tcp(
            [place],
            prefer_localhost=False,
            try_loopback_connect=False,
            reconnect_attempts_max=1,
            timeout=CONNECT_TIMEOUT_S,
            vhost=vhost,
            auto_decode=False,
        )
    )
    if address.tls:
        connection.set_ssl([place], ca_certs=address.ca_file or None, verify=address.verify)
    return connection


def _reason(error: BaseException) -> str:
    """Return the innermost reason: the library's own errors are often without words."""
    cause = error.__cause__ or error.__context__
    text = str(error).strip()
    if not text and cause is not None:
        return _reason(cause)
    return text or f"no connection ({type(error).__name__})"
