# SPDX-License-Identifier: MIT
"""The worker's consumer and its transports for Redis: Celery's, but they end a worker for no message.

The consumer also recovers what a killed worker of its name left, waits for the broker for as long as it takes, and
tells `healthz` and systemd from its main loop that it is alive. What is no JSON, too much of it or too
deep, has not the form of a message, or is damaged ends Celery 5.6: it is given back, and ends the next worker, too.
Here it is refused (in the queue, by remote control, among what a killed worker left), and the queue goes on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from celery import signals
from celery.worker.consumer import Consumer
from celery.worker.request import Request
from celery.worker.state import maybe_shutdown
from kombu import serialization
from kombu.pidbox import Node
from kombu.transport import redis
from kombu.utils import json as kombu_json

from agent.core.bounded_json import TooMuchJson, read_json
from agent.host import service_manager
from agent.host.heartbeat import RENEW_S, Heartbeat, Part
from agent.host.service_manager import ALIVE, READY, STOPPING
from tasks import broker
from tasks.current import settings
from tasks.refusals import refuse

log = logging.getLogger(__name__)

REASON_LETTERS = 500
REMOTE_CONTROL = "of remote control"
# What reading a damaged message raises.
UNREADABLE = (TypeError, ValueError, LookupError, AttributeError)


class SiteConsumer(Consumer):
    """Named in Celery's setting `worker_consumer`."""

    _is_recovered = False
    _timer_of_signs: Any = None

    def __init__(self, *args: Any, **options: Any) -> None:
        options["app"].control.mailbox.node_cls = _CheckedNode
        super().__init__(*args, **options)
        # By the node name, which is unique among the workers of a broker.
        self._sign_of_life = Heartbeat(
            settings().state_dir, Part.WORKER, self.hostname, own_file=settings().heartbeat_path
        )
        signals.worker_shutdown.connect(self._end_signs, weak=False)

    def ensure_connected(self, conn: Any) -> Any:
        """Return the connection once the broker answers; a stop of the worker ends the waiting."""
        connected = broker.wait_for(conn, interrupt=maybe_shutdown)
        self.first_connection_attempt = False
        return connected

    def connect(self) -> Any:
        """Connect, and before the first message is taken put back what a killed predecessor had not acknowledged."""
        connection = super().connect()
        if not self._is_recovered:
            broker.recover_predecessor()
            self._is_recovered = True
        return connection

    def on_ready(self) -> None:
        """Called each time the event loop is entered, as the timers of a lost connection are gone."""
        super().on_ready()
        queues = ", ".join(sorted(self.app.amqp.queues.consume_from))
        service_manager.notify(READY, status=f"takes tasks from {queues}")
        self._pause_signs()
        self._give_signs()
        period_s = min(RENEW_S, service_manager.ping_s())
        self._timer_of_signs = self.timer.call_repeatedly(period_s, self._give_signs)

    def stop(self) -> None:
        """Stop, and tell systemd so: tasks that run are waited for without a loop that could ping."""
        service_manager.notify(STOPPING, status="stops: waits for the tasks that run")
        self._pause_signs()
        super().stop()

    def _give_signs(self) -> None:
        self._sign_of_life.renew()
        # Without an event loop (a broker without one) the timer is a thread, which would ping for a loop that hangs.
        if self.hub:
            service_manager.notify(ALIVE)

    def _pause_signs(self) -> None:
        if self._timer_of_signs is not None:
            self._timer_of_signs.cancel()
            self._timer_of_signs = None

    def _end_signs(self, **_: Any) -> None:
        """Remove the file: this worker ends in order."""
        self._sign_of_life.end()

    def create_task_handler(self, *args: Any) -> Callable[[Any], None]:
        handle = super().create_task_handler(*args)

        def handle_or_refuse(message: Any) -> None:
            try:
                handle(message)
            except UNREADABLE as error:
                self._refuse(message, f"it cannot be read ({type(error).__name__}: {error})")

        return handle_or_refuse

    def on_unknown_message(self, body: Any, message: Any) -> None:
        self._refuse(message, "it is no task")

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        self._refuse(message, f"there is no task {str((message.headers or {}).get('task'))[:80]!r} here")

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        self._refuse(message, f"{type(exc).__name__}: {exc}")

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        self._refuse(message, f"it cannot be read ({exc})")

    def _refuse(self, message: Any, reason: str) -> None:
        body = message.body
        queue = (message.delivery_info or {}).get("routing_key") or "of this worker"
        refuse(str(queue), body if isinstance(body, bytes) else str(body).encode(), reason[:REASON_LETTERS])
        if not message.acknowledged:
            message.reject_log_error(log, self.connection_errors)


class SiteRequest(Request):
    """A received task. It expires by Redis's clock, which beat goes by: with this host's clock ahead by more than a
    period no poll would ever run.
    """

    def maybe_expire(self) -> bool | None:
        if self.expires is not None and datetime.now(self.expires.tzinfo) > self.expires:
            offset_s = broker.clock_offset_s()
            if datetime.now(self.expires.tzinfo) + timedelta(seconds=offset_s) <= self.expires:
                log.warning(
                    "this host's clock and Redis's are %.0f s apart: %s has not expired. Does NTP run on both?",
                    abs(offset_s),
                    self.name,
                )
                return None
        expired: bool | None = super().maybe_expire()
        return expired


class _CheckedNode(Node):
    """A worker's ear for remote control. A message that is no command would have Celery begin to listen anew, after
    which it hears nothing more (5.6).
    """

    def handle_message(self, body: Any, message: Any = None) -> Any:
        try:
            return super().handle_message(body, message)
        except UNREADABLE as error:
            refuse(REMOTE_CONTROL, repr(body).encode(), f"it is no command ({type(error).__name__}: {error})")


class _NotRead(json.JSONDecodeError):
    """A text in `doc` that is no JSON of kombu's, or more than is read."""


def _loads(text: Any) -> Any:
    """Read JSON as kombu does, within our bounds. Raises _NotRead: kombu's hook for objects raises anything."""
    try:
        return kombu_json.loads(text, _loads=read_json)
    except UNREADABLE as error:
        found = text if isinstance(text, str) else bytes(text).decode("utf-8", "surrogateescape")
        reason = str(error) if isinstance(error, TooMuchJson) else "it is no JSON"
        raise _NotRead(reason, found, 0) from error


# Bodies of messages, of whatever broker.
serialization.register(
    "json", kombu_json.dumps, _loads, content_type="application/json", content_encoding="utf-8"
)
# What is around them in Redis: kombu reads it before any method of ours could see it.
redis.loads = _loads


class _CheckedChannel:
    """Takes what cannot be read out of a queue, and off the channel of remote control."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]
        except _NotRead as error:
            refuse("of this worker", _bytes_of(error), error.msg)
            return True

    def _handle_message(self, client: Any, response: Any) -> Any:
        """Return what came by a channel, without its data where that cannot be read: kombu would only log it."""
        payload = super()._handle_message(client, response)  # type: ignore[misc]
        if payload["data"] and isinstance(payload["data"], bytes):
            try:
                _loads(payload["data"])
            except _NotRead as error:
                refuse(REMOTE_CONTROL, _bytes_of(error), error.msg)
                payload["data"] = None
        return payload


def _bytes_of(error: _NotRead) -> bytes:
    return error.doc.encode("utf-8", "surrogateescape")


class _CheckedUnacknowledged(redis.QoS):
    """What a worker has taken and not acknowledged: an entry that cannot be put back is taken away."""

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        try:
            super().restore_by_tag(tag, client, leftmost)
        except UNREADABLE as error:
            with self.channel.conn_or_acquire(client) as redis_client:
                found = redis_client.hget(self.unacked_key, tag)
                self._remove_from_indices(tag).execute()
            reason = error.msg if isinstance(error, _NotRead) else "it has not the form of a message"
            refuse("of what was not acknowledged", found or b"", reason)


class _CheckedDelivery:
    """Delivers only what has the form of a message."""

    channels: list[Any]

    def _deliver(self, message: Any, queue: str) -> None:
        try:
            made = self.channels[0].Message(message, channel=self.channels[0])
            _ = made.delivery_info["exchange"], made.delivery_info["routing_key"], dict(made.headers)
        except UNREADABLE as error:
            reason = f"it has not the form of a message ({type(error).__name__}: {error})"
            refuse(queue, json.dumps(message, default=str).encode(), reason)
            return
        super()._deliver(message, queue)  # type: ignore[misc]


class _Channel(_CheckedChannel, redis.Channel):
    QoS = _CheckedUnacknowledged


class _SentinelChannel(_CheckedChannel, redis.SentinelChannel):
    QoS = _CheckedUnacknowledged


class RedisTransport(_CheckedDelivery, redis.Transport):
    Channel = _Channel


class SentinelTransport(_CheckedDelivery, redis.SentinelTransport):
    Channel = _SentinelChannel
