# SPDX-License-Identifier: MIT
"""The simulated Waldur at an MQTT broker: publishes at QoS 0, as the real one did, or 1. Makes no logins: brokers
outside RabbitMQ get them by other means.
"""

from __future__ import annotations

import json
from contextlib import suppress

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from simulator.events.broker import BrokerFailed
from simulator.world.records import JsonObject


class MqttBroker:
    has_topics = True

    def __init__(self, host: str, port: int, *, qos: int = 0) -> None:
        self._qos = qos
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id="waldur", clean_session=False,
            protocol=MQTTProtocolVersion.MQTTv311,
        )  # fmt: skip
        self._client.max_queued_messages_set(0)
        self._client.max_inflight_messages_set(100)
        self._client.reconnect_delay_set(1, 1)
        try:
            self._client.connect(host, port, keepalive=600)
        except OSError as error:
            raise BrokerFailed(f"{host}:{port}: {error}") from error
        self._client.loop_start()

    def add_login(self, vhost: str, login: str, passcode: str) -> None:
        """Nothing to be done: see the module."""

    def add_queue(self, vhost: str, name: str) -> None:
        """Topics need no making."""

    def publish(self, vhost: str, name: str, payload: JsonObject) -> None:
        """At QoS 0 what is sent while the broker is away is gone, at QoS 1 it is sent again."""
        self._client.publish(name, json.dumps(payload), qos=self._qos)

    def close(self) -> None:
        self._client.disconnect()
        # paho 2.2 joins its thread without a look whether it has ended since loop_stop began.
        with suppress(AttributeError):
            self._client.loop_stop()
