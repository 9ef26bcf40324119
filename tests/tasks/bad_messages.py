# SPDX-License-Identifier: MIT
"""Messages of Waldur's brokers that nobody can read."""

from __future__ import annotations

from agent.bridge.model import Address, Login, Received, Source, Wire
from agent.config.secret import Secret
from agent.core.events import ObjectType

LOGIN = Login(Address(Wire.STOMP, "mq", 443, "/x"), "v" * 32, "u" * 32, Secret("t0ken"))


def received(body: bytes, offering: str = "a" * 32) -> Received:
    source = Source(LOGIN, "queue", offering, ObjectType.ORDER, frozenset({ObjectType.ORDER}))
    return Received(source, body, len(body), lambda: None)
