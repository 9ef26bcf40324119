# SPDX-License-Identifier: MIT
"""Connect the simulated Waldur and an offering to the brokers of the tests."""

from __future__ import annotations

from typing import Any

from rig.mosquitto import Mosquitto
from rig.rabbitmq import ADMIN, PASSWORD, RabbitMq
from simulator.events.rabbitmq import RabbitMqAccess, RabbitMqBroker


def rabbitmq_side(rabbitmq: RabbitMq) -> RabbitMqBroker:
    ports = rabbitmq.ports
    return RabbitMqBroker(
        RabbitMqAccess("127.0.0.1", ports["stomp"], ports["management"], user=ADMIN, password=PASSWORD)
    )


def stomp_keys(rabbitmq: RabbitMq, **more: Any) -> dict[str, Any]:
    """Return the keys of an offering whose events come from this broker over a WebSocket without TLS."""
    return {
        "stomp_enabled": True,
        "stomp_ws_host": "127.0.0.1",
        "stomp_ws_port": rabbitmq.ports["web_stomp"],
        "websocket_use_tls": False,
        **more,
    }


def mqtt_keys(mosquitto: Mosquitto, **more: Any) -> dict[str, Any]:
    """Return the same for MQTT."""
    return {
        "mqtt_enabled": True,
        "stomp_ws_host": "127.0.0.1",
        "stomp_ws_port": mosquitto.web_port,
        "websocket_use_tls": False,
        **more,
    }
