# SPDX-License-Identifier: MIT
"""The kinds of brokers: Redis, which all processes share; RabbitMQ, which keeps messages only; and the memory of one
process (`tasks.embedded`). Whatever depends on the kind, Celery's settings as well, is in its class here.
"""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from kombu import Connection
from kombu.exceptions import OperationalError
from redis import RedisError

import beat_schedule as table
from agent.core.bounded_json import read_json
from agent.core.checks import Check, problem, unknown, warning
from agent.core.events import QueueUnavailable
from tasks.current import settings
from tasks.limits import QUEUED_AT, VISIBILITY_TIMEOUT_S
from tasks.queue.stores import HostStore, ProcessStore, RedisStore, Store

log = logging.getLogger(__name__)

# What RabbitMQ has not confirmed by then counts as not sent. Beat must give a sign of life within three minutes.
CONFIRMED_WITHIN_S = 30.0
# AMQP's reply code for a queue that does not exist.
NOT_FOUND = 404


class Waiting(NamedTuple):
    """Messages of a queue that no worker has taken, None where that is not known; by priority where that is known; when
    the oldest was sent.
    """

    messages: int | None
    by_priority: Mapping[int, int]
    oldest: datetime | None


class Broker(ABC):
    """A broker of messages, as Celery's transport and as what the work queue needs to know of it."""

    # What it cannot do for the work queue; empty where it can do all.
    lacks: ClassVar[str] = ""

    # By the scheme of the broker's URL: kombu's transports that ours replace in a worker.
    transports: ClassVar[Mapping[str, str]] = {}
    transport_options: ClassVar[Mapping[str, Any]] = {}
    # Of connections that tasks are sent by, besides those.
    sending_options: ClassVar[Mapping[str, Any]] = {}
    # Of the queues, where priorities need a queue that was made for them; the highest number is first then.
    max_priority: ClassVar[int | None] = None
    prefetch_multiplier = 1
    disables_prefetch = False
    # Whether no other process takes tasks from the queue.
    is_alone = False

    def __init__(self, connection: Connection, node_name: str = "") -> None:
        self._connection = connection
        # Of a worker.
        self._node_name = node_name

    @property
    @abstractmethod
    def store(self) -> Store:
        """Return where the records of the work queue are."""

    @classmethod
    def priority(cls, step: int) -> int:
        """Return a priority of beat_schedule as this broker counts."""
        return step if cls.max_priority is None else cls.max_priority - step

    def urgent_waits(self, queue: str, below: int) -> bool:
        """Return whether a task of a priority number below this one waits in the queue; False where that is unknown."""
        return False

    def waiting(self, queue: str) -> Waiting:
        """Return what waits in a queue; nothing where it does not exist yet. Raises what kombu raises."""
        try:
            with self._connection.channel() as channel:
                return Waiting(int(channel.queue_declare(queue, passive=True).message_count), {}, None)
        except self._connection.channel_errors as error:
            is_missing = int(error.reply_code or 0) == NOT_FOUND
            log.debug("the queue %s cannot be looked at: %s", queue, error)
            return Waiting(0 if is_missing else None, {}, None)

    def unacknowledged(self) -> int | None:
        """Return how many messages workers have taken and not acknowledged; None where that is unknown. Raises
        RedisError.
        """
        return None

    def receivers(self, send_to_all: Callable[[], object]) -> int | None:
        """Send something to all workers, and return how many received it; None where the broker does not count. Raises
        what kombu raises.
        """
        return None

    def checks(self) -> Iterator[Check]:
        """Yield what is wrong with the broker's own settings."""
        yield from ()

    def clock_offset_s(self) -> float:
        """Return how far the broker's clock is ahead of this host's; 0 where it has none, or does not answer."""
        return 0.0

    def put_back(self) -> int:
        """Put the unacknowledged tasks of a killed worker of our name back into their queues, and return how many there
        were; 0 where the broker does it by itself when a connection ends. Raises RedisError.
        """
        return 0


class RabbitBroker(Broker):
    """RabbitMQ. What is known of tasks is known on this host: each message is sent."""

    lacks = "RabbitMQ keeps messages only, and no records that all processes share"
    max_priority = table.HIGHEST
    # It says that it has a message (https://www.rabbitmq.com/docs/confirms). Of a sender that ended without waiting for
    # that, a busy one lost the last messages.
    sending_options: ClassVar = {
        "confirm_publish": True,
        "read_timeout": CONFIRMED_WITHIN_S,
        "write_timeout": CONFIRMED_WITHIN_S,
    }

    @cached_property
    def store(self) -> Store:
        return HostStore(settings().state_dir / "queue")


class MemoryBroker(Broker):
    transports: ClassVar = {"memory": "tasks.queue.memory:Transport"}
    # Seconds between two looks into the queue.
    transport_options: ClassVar = {"polling_interval": 0.1}
    # Celery confirms the end of a task within 2 s only: until then it goes on with the next one.
    prefetch_multiplier = 4
    is_alone = True

    @cached_property
    def store(self) -> Store:
        return ProcessStore(HostStore(settings().state_dir / "queue"))

    def urgent_waits(self, queue: str, below: int) -> bool:
        return bool(self._connection.default_channel.waits(queue, below))


class RedisBroker(Broker):
    transports: ClassVar = {
        "redis": "tasks.queue.consumer:RedisTransport",
        "rediss": "tasks.queue.consumer:RedisTransport",
        "sentinel": "tasks.queue.consumer:SentinelTransport",
    }
    transport_options: ClassVar = {
        "visibility_timeout": VISIBILITY_TIMEOUT_S,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_timeout": 30,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 25,
        "priority_steps": list(table.STEPS),
        "sep": table.SEPARATOR,
        "queue_order_strategy": "priority",
    }
    disables_prefetch = True

    @cached_property
    def client(self) -> Any:
        """Return the redis-py client of Celery's transport: Sentinel, TLS and passwords of the URL hold here too. The
        first one connects. Raises QueueUnavailable.
        """
        try:
            return self._connection.default_channel.client
        except (OperationalError, RedisError, OSError) as error:
            raise QueueUnavailable(f"Redis does not answer: {error}") from error

    @cached_property
    def store(self) -> Store:
        return RedisStore(self.client, self._node_name or f"process-{os.getpid()}")

    def urgent_waits(self, queue: str, below: int) -> bool:
        try:
            return any(
                self.client.llen(table.priority_key(queue, step)) for step in table.STEPS if step < below
            )
        except (QueueUnavailable, RedisError) as error:
            log.debug("whether something waits in %s is not known: %s", queue, error)
            return False

    def clock_offset_s(self) -> float:
        try:
            seconds, microseconds = self.client.time()
        except (QueueUnavailable, RedisError) as error:
            log.debug("the clock of Redis cannot be read: %s", error)
            return 0.0
        return float(seconds + microseconds / 1e6 - time.time())

    def waiting(self, queue: str) -> Waiting:
        lists = {step: table.priority_key(queue, step) for step in table.STEPS}
        lengths = {step: int(self.client.llen(key)) for step, key in lists.items()}
        # New ones come in on the left.
        oldest = [self.client.lindex(lists[step], -1) for step, length in lengths.items() if length]
        sent = [moment for message in oldest if message and (moment := _sent(message))]
        return Waiting(sum(lengths.values()), lengths, min(sent, default=None))

    def unacknowledged(self) -> int:
        return sum(self.client.hlen(key) for key in self.client.scan_iter(match="unacked*", _type="hash"))

    def receivers(self, send_to_all: Callable[[], object]) -> int:
        channel, received = self._connection.default_channel, []
        make = channel.Client

        def counting(**options: Any) -> Any:
            client = make(**options)
            client.set_response_callback("PUBLISH", lambda count, **_: received.append(count))
            return client

        channel.Client = counting
        try:
            send_to_all()
        finally:
            channel.Client = make
        return sum(received)

    def checks(self) -> Iterator[Check]:
        """Check that Redis throws no queue away: https://redis.io/docs/latest/develop/reference/eviction/"""
        try:
            policy = _text(self.client.config_get("maxmemory-policy").get("maxmemory-policy", ""))
            is_kept = _text(self.client.config_get("appendonly").get("appendonly", ""))
        except RedisError as error:
            yield unknown("broker", f"whether Redis keeps its data cannot be asked ({error})")
            return
        if policy and policy != "noeviction":
            said = f"Redis drops data when its memory is full (maxmemory-policy {policy}): tasks may vanish"
            yield problem("broker", said, "set `maxmemory-policy noeviction` in redis.conf")
        if is_kept == "no":
            said = "Redis forgets its queues when it restarts (appendonly no): the next passes repair what is lost"
            yield warning("broker", said, "set `appendonly yes` in redis.conf")

    def put_back(self) -> int:
        channel = self._connection.default_channel
        tags = channel.client.hkeys(channel.unacked_key)
        for tag in tags:
            channel.qos.restore_by_tag(tag, leftmost=True)
        return len(tags)


def of(connection: Connection, node_name: str = "") -> Broker:
    """Return the broker that a connection leads to."""
    return kind_of(connection.as_uri())(connection, node_name)


def kind_of(url: str) -> type[Broker]:
    """Return the class of the broker of a URL: Redis, the memory of this process, else RabbitMQ. The configuration has
    refused all other schemes.
    """
    scheme = url.partition(":")[0].partition("+")[0]
    return next((kind for kind in (RedisBroker, MemoryBroker) if scheme in kind.transports), RabbitBroker)


def _sent(message: bytes) -> datetime | None:
    """Return when a message was sent; None where it is none of ours."""
    try:
        return datetime.fromtimestamp(float(read_json(message)["headers"][QUEUED_AT]), UTC)
    except (KeyError, OverflowError, TypeError, ValueError):
        return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
