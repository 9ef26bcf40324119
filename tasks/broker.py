# SPDX-License-Identifier: MIT
"""Use the broker's Redis from this process: locks, markers, waiting messages, and recovery after a killed worker.

The client comes from Celery's transport, so that Sentinel, TLS and passwords of the broker URL hold here too.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from redis import RedisError

import beat_schedule as table
from agent.host import service_manager
from tasks.app import app
from tasks.current import settings
from tasks.locks import FileLocks, Locks, RedisLocks, unmark_queued

log = logging.getLogger(__name__)

UNACKED_KEYS = ("unacked_key", "unacked_index_key", "unacked_mutex_key")

_owner = f"process-{os.getpid()}"


def set_node_name(node_name: str) -> None:
    """Make this process, and the children that it forks, the worker of that name."""
    global _owner
    _owner = node_name
    for key in UNACKED_KEYS:
        app.conf.broker_transport_options[key] = f"{key.removesuffix('_key')}:{node_name}"


def uses_redis() -> bool:
    """Return whether the broker is Redis; with another one there are no markers and no heartbeats."""
    return bool(app.connection_for_write().transport.driver_type == "redis")


def is_embedded() -> bool:
    """Return whether the queue is in the memory of this process (`tasks.embedded`)."""
    return bool(app.connection_for_write().transport.driver_type == "memory")


def waiting_here() -> int:
    """Return how many tasks wait in the memory of this process."""
    with app.connection_for_read() as connection:
        return sum(connection.default_channel._size(queue.name) for queue in app.conf.task_queues)


@cache
def _client_of(_pid: int) -> Any:
    return app.connection_for_write().default_channel.client


def client() -> Any:
    """Return this process's redis-py client: a forked child must not share its parent's socket."""
    return _client_of(os.getpid())


def wait_for(connection: Any, *, interrupt: Callable[[], None] = lambda: None) -> Any:
    """Return the connection once the broker answers, however long that takes; log and tell systemd why it waits.

    `interrupt` is called each second, and may raise to end the waiting.
    """

    def alive() -> None:
        interrupt()
        service_manager.notify(service_manager.ALIVE)

    def failed(error: Exception, wait_s: float) -> None:
        place = connection.as_uri()
        log.error("the broker %s cannot be reached: %s; tried again in %.0f s", place, error, wait_s)
        service_manager.notify(status=f"the broker {place} cannot be reached: {error}")

    return connection.ensure_connection(failed, None, callback=alive)


def locks() -> Locks:
    """Return locks in Redis, or lock files of this node with another broker."""
    return RedisLocks(client(), _owner) if uses_redis() else FileLocks(settings().state_dir)


def recover_predecessor() -> None:
    """Free the locks of a killed worker of our name, and put its unacknowledged tasks back into their queues.

    Otherwise a killed worker's tasks wait for the visibility timeout. Safe because node names are unique among the
    workers of a broker.
    """
    if not uses_redis():
        return
    freed = RedisLocks(client(), _owner).free_predecessors()
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        tags = channel.client.hkeys(channel.unacked_key)
        for tag in tags:
            channel.qos.restore_by_tag(tag, leftmost=True)
    if freed or tags:
        log.warning(
            "a worker named %s ended without finishing: %d locks freed, %d tasks put back",
            _owner,
            freed,
            len(tags),
        )


def clock_offset_s() -> float:
    """Return how far Redis's clock is ahead of this host's; 0 with another broker, or where it does not answer."""
    if not uses_redis():
        return 0.0
    try:
        seconds, microseconds = client().time()
    except RedisError as error:
        log.debug("the clock of Redis cannot be read: %s", error)
        return 0.0
    return float(seconds + microseconds / 1e6 - time.time())


def urgent_waits(queue: str, below: int) -> bool:
    """Return whether a task of a priority number below this one waits in the queue; False where that is unknown."""
    if is_embedded():
        with app.connection_for_read() as connection:
            return bool(connection.default_channel.waits(queue, below))
    if not uses_redis():
        return False
    steps = [step for step in app.conf.broker_transport_options["priority_steps"] if step < below]
    try:
        return any(client().llen(priority_key(queue, step)) for step in steps)
    except RedisError as error:
        log.debug("whether something waits in %s is not known: %s", queue, error)
        return False


def priority(step: int) -> int:
    """Return a priority of beat_schedule as this broker counts."""
    is_rising = app.connection_for_write().transport.driver_type == "amqp"
    return table.rising(step) if is_rising else step


def priority_key(queue: str, step: int) -> str:
    """Return the key of a queue's messages of one priority step, as Celery documents it (Routing Tasks, Redis)."""
    return f"{queue}{app.conf.broker_transport_options['sep']}{step}" if step else queue


def clear_marker(task: str, offering_uuid: str) -> None:
    """Let beat queue a periodic task again, now that this one has begun."""
    if not uses_redis():
        return
    try:
        unmark_queued(client(), task, offering_uuid)
    except RedisError as error:
        log.debug("marker of %s stays until it expires: %s", task, error)
