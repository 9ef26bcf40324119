# SPDX-License-Identifier: MIT
"""The worker's consumer and its transports for Redis: Celery's, but they end a worker for no message.

The consumer also recovers what a killed worker of its name left, waits for the broker for as long as it takes, and
reports to `healthz` and systemd from its main loop that it is alive, and looks there for pauses that have ended. What
is no JSON, too much of it or too deep, has not the form of a message, or is damaged ends Celery 5.6: it is given back,
and ends the next worker, too. Here it is refused (in the queue, by remote control, among what a killed worker left),
and the queue goes on.
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
from tasks import pauses
from tasks.current import settings
from tasks.queue import broker
from tasks.queue.refusals import refuse

log = logging.getLogger(__name__)

REASON_LETTERS = 500
REMOTE_CONTROL = "of remote control"
# What reading a damaged message raises.
UNREADABLE = (TypeError, ValueError, LookupError, AttributeError)


class SiteConsumer(Consumer):
    """Named in Celery's setting `worker_consumer`."""

    _is_recovered = False
    _timers: tuple[Any, ...] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        options["app"].control.mailbox.node_cls = _CheckedNode
        super().__init__(*args, **options)
        # By the node name, which is unique among the workers of a broker.
        self._heartbeat = Heartbeat(
            settings().state_dir, Part.WORKER, self.hostname, own_file=settings().heartbeat_path
        )
        signals.worker_shutdown.connect(self._end_heartbeat, weak=False)

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
        queues = sorted(self.app.amqp.queues.consume_from)
        service_manager.notify(READY, status=f"takes tasks from {', '.join(queues)}")
        self._cancel_timers()
        self._renew_heartbeat()
        period_s = min(RENEW_S, service_manager.ping_s())
        self._timers = (
            self.timer.call_repeatedly(period_s, self._renew_heartbeat),
            self.timer.call_repeatedly(RENEW_S, pauses.queue_passes, (queues,)),
        )

    def stop(self) -> None:
        """Stop, and notify systemd: tasks that run are waited for without a loop that could ping."""
        service_manager.notify(STOPPING, status="stops: waits for the tasks that run")
        self._cancel_timers()
        super().stop()

    def _renew_heartbeat(self) -> None:
        self._heartbeat.renew()
        # Without an event loop (a broker without one) the timer is a thread, which would ping for a loop that hangs.
        if self.hub:
            service_manager.notify(ALIVE)

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = ()

    def _end_heartbeat(self, **_: Any) -> None:
        """Remove the file: this worker ends in order."""
        self._heartbeat.end()

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
            offset_s = broker.here().clock_offset_s()
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
    """Takes the commands of remote control. After a message that is no command Celery would connect again, and receive
    no further command (5.6). A mailbox makes its node of the class that it has as `node_cls`; Celery has no setting for
    the class of a mailbox.
    """

    def handle_message(self, body: Any, message: Any = None) -> Any:
        try:
            return super().handle_message(body, message)
        except UNREADABLE as error:
            refuse(REMOTE_CONTROL, repr(body).encode(), f"it is no command ({type(error).__name__}: {error})")


def _loads(text: Any) -> Any:
    """Read JSON as kombu does, within our bounds. Raises ValueError: kombu's hook for objects raises anything."""
    try:
        return read_json(text, object_hook=kombu_json.object_hook)
    except TooMuchJson:
        raise
    except UNREADABLE as error:
        raise ValueError("it is no JSON") from error


# Bodies of messages, of whatever broker.
serialization.register(
    "json", kombu_json.dumps, _loads, content_type="application/json", content_encoding="utf-8"
)


class _Unreadable(dict[str, Any]):
    """In place of a message: what a queue, a channel or a worker's unacknowledged messages had instead."""

    text, reason = "", ""


def _envelope(text: str) -> Any:
    """Read what is around a body in Redis."""
    try:
        return _loads(text)
    except ValueError as error:
        found = _Unreadable()
        found.text, found.reason = text, str(error)
        return found


# kombu reads an envelope by this name of its module before any method sees it, and has no setting for it. What it
# raises would end the worker.
redis.loads = _envelope


class _CheckedUnacknowledged(redis.QoS):
    """What a worker has taken and not acknowledged: an entry that cannot be put back is taken away."""

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        try:
            super().restore_by_tag(tag, client, leftmost)
        except UNREADABLE:
            with self.channel.conn_or_acquire(client) as redis_client:
                found = redis_client.hget(self.unacked_key, tag)
                redis_client.zrem(self.unacked_index_key, tag)
                redis_client.hdel(self.unacked_key, tag)
            refuse("of what was not acknowledged", found or b"", "it has not the form of a message")


class _CheckedDelivery:
    """Delivers only what has the form of a message. kombu gives every message of its queues and channels to this
    method, and has no other place between reading one and building on its form.
    """

    channels: list[Any]

    def _deliver(self, message: Any, queue: str) -> None:
        if isinstance(message, _Unreadable):
            refuse(queue, message.text.encode(), message.reason)
            return
        try:
            made = self.channels[0].Message(message, channel=self.channels[0])
            _ = made.delivery_info["exchange"], made.delivery_info["routing_key"], dict(made.headers)
        except UNREADABLE as error:
            reason = f"it has not the form of a message ({type(error).__name__}: {error})"
            refuse(queue, json.dumps(message, default=str).encode(), reason)
            return
        super()._deliver(message, queue)  # type: ignore[misc]


class _Channel(redis.Channel):
    QoS = _CheckedUnacknowledged


class _SentinelChannel(redis.SentinelChannel):
    QoS = _CheckedUnacknowledged


class RedisTransport(_CheckedDelivery, redis.Transport):
    Channel = _Channel


class SentinelTransport(_CheckedDelivery, redis.SentinelTransport):
    Channel = _SentinelChannel
