# SPDX-License-Identifier: MIT
"""The vocabulary of the bridge: where it logs in, what it listens to, what came, and where jobs go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from agent.config.model import Mode
from agent.config.secret import Secret
from agent.core.events import Job, ObjectType


class Wire(StrEnum):
    STOMP = "STOMP"
    MQTT = "MQTT"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is."""

    wire: Wire
    host: str
    port: int
    # Empty: plain TCP, else a WebSocket.
    path: str
    tls: bool = True
    verify: bool = True
    # Empty: the system's.
    ca_file: str = ""
    # The URL of the proxy on the way to it, empty where there is none.
    proxy: Secret = field(default=Secret(""), repr=False)

    def __str__(self) -> str:
        return f"{self.wire} {self.host}:{self.port}{self.path}"


@dataclass(frozen=True, slots=True)
class Login:
    """One connection: everything that this login may read comes over it."""

    address: Address
    vhost: str
    user: str
    passcode: Secret = field(repr=False)

    def __str__(self) -> str:
        return f"{self.address} as {self.user[:8]}"


@dataclass(frozen=True, slots=True)
class Source:
    """A queue or topic with the messages about one offering."""

    login: Login
    name: str
    offering_uuid: str
    # None: each message names its own.
    object_type: ObjectType | None
    types: frozenset[ObjectType]


@dataclass(frozen=True, slots=True)
class Received:
    """A message as it came."""

    source: Source
    # Cut where the message is larger than any of Waldur's.
    body: bytes
    # Of the whole message.
    size: int
    # May be called once, from any thread, and never raises.
    acknowledge: Callable[[], None] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages about an offering may have been missed."""

    offering_uuid: str
    reason: str


class Outbox(Protocol):
    """Where jobs and heartbeats go. Both methods raise QueueUnavailable, and then nothing was queued."""

    def send(self, job: Job) -> bool:
        """Queue the job; False when one like it waits already, so that none more is needed."""
        ...

    def send_heartbeat(self, offering_uuid: str, modes: Iterable[Mode]) -> None:
        """Report to beat that events of this offering reach the queue for some time to come, for these modes."""
        ...
