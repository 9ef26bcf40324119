# SPDX-License-Identifier: MIT
"""MQTT over a WebSocket or plain TCP, on paho: version 5, or 3.1.1 where the broker knows no other.

The session outlives the connection, so that a broker keeps messages of QoS 1. Waldur
publishes at QoS 0: what was sent without a connection is lost, and every new connection is a gap.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from agent.bridge import inbox, proxy, tls
from agent.bridge.connection import (
    CONNECT_TIMEOUT_S,
    BrokerConnection,
    ConnectionFailed,
    LoginRefused,
    SourcesCallback,
)
from agent.bridge.decode import MAX_BYTES
from agent.bridge.inbox import Inbox
from agent.bridge.model import Login, Received, Source

log = logging.getLogger(__name__)

# Twice this without an answer to a ping and the connection is dead.
KEEPALIVE_S = 15
SESSION_EXPIRY_S = 86_400
QOS = 1
# A message, its topic and its properties. A WebSocket's frame may have several packets.
PACKET_AT_MOST = 16 * MAX_BYTES
UNSUPPORTED_VERSION = "Unsupported protocol version"
REFUSALS = ("Bad user name or password", "Not authorized", "Client identifier not valid", "Banned")


class _BoundedClient(Client):
    """Ends the connection before a packet is read that is larger than a message may be: paho keeps up to 256 MB."""

    has_refused = False

    def _sock_recv(self, bufsize: int) -> bytes:
        """Read, as paho 2.2 reads everything of a packet. It has no public place for this; `_readbuffer` is what it
        keeps of a WebSocket's frame.
        """
        kept = len(getattr(self._sock, "_readbuffer", b""))
        if max(bufsize, kept) > PACKET_AT_MOST:
            self.has_refused = True
            raise ConnectionError(f"a packet of {max(bufsize, kept)} bytes")
        return super()._sock_recv(bufsize)


class MqttConnection(BrokerConnection):
    """A connection over MQTT. `instance` distinguishes bridges: a broker ends a connection when another comes with the
    same client id.
    """

    # Messages at QoS 0 are kept by no broker.
    gap_after_s = 0.0

    def __init__(
        self,
        login: Login,
        inbox: Inbox,
        *,
        on_lost: SourcesCallback,
        on_refused: SourcesCallback,
        instance: str,
    ) -> None:
        super().__init__(login, inbox, on_lost=on_lost, on_refused=on_refused)
        self.version = MQTTProtocolVersion.MQTTv5
        self._client_id = f"waldur-site-{login.user.partition('-')[0][:32]}-{instance}"
        self._client: Client | None = None
        # The broker shall forget the session: a message in it is too large, and would come again.
        self._forgets = False
        self._problem: ConnectionFailed | None = None
        self._has_answer = False
        # Subscriptions that the broker has not answered yet, in the order in which they were asked for.
        self._pending: list[Source] = []
        self._subscribe_lock = threading.Lock()

    def session(self) -> None:
        self._problem = None
        self._has_answer = False
        self._pending = []
        version = self.version
        options: dict[str, Any] = {}
        if version is MQTTProtocolVersion.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = SESSION_EXPIRY_S
            properties.ReceiveMaximum = inbox.PER_SOURCE_AT_MOST
            # A broker that keeps to it does not send what is larger.
            properties.MaximumPacketSize = PACKET_AT_MOST
            options = {"clean_start": self._forgets, "properties": properties}
        client = self._client = self._new_client()
        try:
            client.connect(self.login.address.host, self.login.address.port, KEEPALIVE_S, **options)
            client.loop_forever()
            self._forgets = client.has_refused
            if client.has_refused:
                self._problem = ConnectionFailed(
                    f"the broker sends a message of more than {PACKET_AT_MOST} bytes, which Waldur does not: "
                    "it is asked to forget what it keeps for us, and everything is looked at"
                )
        except (OSError, ValueError) as error:
            raise ConnectionFailed(str(error) or type(error).__name__) from error
        finally:
            self._client = None
        if not self._has_answer and self.subscriptions.wanted and not self.is_stopping:
            # RabbitMQ (3.10) hangs up on MQTT 5 without a word, and over a WebSocket on a wrong login as well: the
            # other version is tried.
            is_v5 = version is MQTTProtocolVersion.MQTTv5
            self.version = MQTTProtocolVersion.MQTTv311 if is_v5 else MQTTProtocolVersion.MQTTv5
            if not is_v5:
                self._problem = LoginRefused(
                    "the broker hangs up without a word: perhaps it refuses the login"
                )
        if self._problem is not None:
            raise self._problem
        if not self.should_end and self.version is version:
            raise ConnectionFailed("the connection ended")

    def update_subscriptions(self) -> None:
        client = self._client
        if client is not None and client.is_connected():
            self._subscribe_to_missing(client)

    def disconnect(self) -> None:
        """End the connection. Nothing happens while one is being made (paho): `_subscribe_to_missing` ends that one."""
        client = self._client
        if client is not None:
            client.disconnect()

    def _subscribe_to_missing(self, client: Client) -> None:
        """Subscribe to what is wanted and not subscribed, one request at a time; or end the session."""
        with self._subscribe_lock:
            if self.should_end:
                client.disconnect()
                return
            if not self._pending:
                self._pending = sorted(self.subscriptions.missing, key=lambda s: s.name)
                if self._pending:
                    client.subscribe([(source.name, QOS) for source in self._pending])

    def _new_client(self) -> _BoundedClient:
        is_v5 = self.version is MQTTProtocolVersion.MQTTv5
        client = _BoundedClient(
            CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            clean_session=None if is_v5 else self._forgets,
            protocol=self.version,
            transport="websockets" if self.login.address.path else "tcp",
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = CONNECT_TIMEOUT_S
        client.username_pw_set(f"{self.login.vhost}:{self.login.user}", self.login.passcode.reveal())
        if self.login.address.path:
            client.ws_set_options(path=self.login.address.path)
        if self.login.address.tls:
            client.tls_set_context(tls.context(self.login.address))
        if via := proxy.proxy_of(self.login.address):
            client.proxy_set(**via.arguments())
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    def _on_connect(self, client: Client, _: Any, flags: Any, reason: Any, __: Any) -> None:
        self._has_answer = True
        if not reason.is_failure:
            self._subscribe_to_missing(client)
            return
        if str(reason) == UNSUPPORTED_VERSION and self.version is MQTTProtocolVersion.MQTTv5:
            # An old broker is asked again at once, in its own version.
            self.version = MQTTProtocolVersion.MQTTv311
            log.info("%s knows no MQTT 5: going on with 3.1.1", self.login.address)
        else:
            kind = LoginRefused if str(reason) in REFUSALS else ConnectionFailed
            self._problem = kind(f"the broker refuses the connection: {reason}")
        client.disconnect()

    def _on_subscribe(self, client: Client, _: Any, __: int, reasons: Any, ___: Any) -> None:
        """Note the broker's answer for each topic, in the order in which they were asked for."""
        answered = list(zip(self._pending, reasons, strict=False))
        lost = [source for source, reason in answered if reason.is_failure]
        self.subscriptions.note_subscribed(source for source, reason in answered if not reason.is_failure)
        if lost:
            log.warning(
                "%s: not authorised to read topic %s: asking Waldur to prepare it again",
                self.login,
                lost[0].name,
            )
            self._report_lost(lost)
        self._pending = []
        self._subscribe_to_missing(client)

    def _on_message(self, client: Client, _: Any, message: MQTTMessage) -> None:
        source = next((s for s in self.subscriptions.wanted if s.name == message.topic), None)
        body = bytes(message.payload)
        if source is None:  # of a subscription that this session has from before
            client.ack(message.mid, message.qos)
        elif not self.is_stopping:
            acknowledge = partial(_acknowledge, client, message.mid, message.qos)
            received = Received(source, inbox.cut(body), len(body), acknowledge)
            if message.qos:
                self._inbox.put(received)
            else:
                self._inbox.put_volatile(received)


def _acknowledge(client: Client, message_id: int, qos: int) -> None:
    """On a connection that is gone it does nothing: the broker delivers the message again."""
    if qos:
        client.ack(message_id, qos)
