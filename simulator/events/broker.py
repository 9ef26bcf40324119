# SPDX-License-Identifier: MIT
"""Interface of a message broker to the simulated Waldur: logins, queues and messages."""

from __future__ import annotations

from typing import Protocol

from simulator.world.records import JsonObject

# As Waldur declares its queues: one hour, ten thousand messages, then the newest are refused.
QUEUE_TTL_MS = 3_600_000
QUEUE_LENGTH = 10_000


class BrokerFailed(Exception):
    """The broker refused or failed; the text is its answer."""


class EventBroker(Protocol):
    """Every method may raise BrokerFailed."""

    # STOMP queues are made for each offering and type; MQTT topics are not made at all.
    has_topics: bool

    def add_login(self, vhost: str, login: str, passcode: str) -> None: ...

    def add_queue(self, vhost: str, name: str) -> None: ...

    def publish(self, vhost: str, name: str, payload: JsonObject) -> None:
        """Send it; returns before the broker has it."""
        ...

    def close(self) -> None: ...
