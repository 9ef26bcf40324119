# SPDX-License-Identifier: MIT
"""This process's own use of the broker: locks and markers in its Redis, and the messages of a dead predecessor.

The client comes from Celery's transport, so that Sentinel, TLS and passwords of the broker URL hold here too.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import Any

from redis import RedisError

from tasks.app import app
from tasks.current import settings
from tasks.locks import FileLocks, Locks, RedisLocks, unmark_queued

log = logging.getLogger(__name__)

UNACKED_KEYS = ("unacked_key", "unacked_index_key", "unacked_mutex_key")

_owner = f"process-{os.getpid()}"


def be(node_name: str) -> None:
    """This process is the worker of that name, and so are the children that it forks."""
    global _owner
    _owner = node_name
    for key in UNACKED_KEYS:
        app.conf.broker_transport_options[key] = f"{key.removesuffix('_key')}:{node_name}"


def uses_redis() -> bool:
    return bool(app.connection_for_write().transport.driver_type == "redis")


@cache
def _client_of(_pid: int) -> Any:
    """One connection per process: a forked child must not share its parent's socket."""
    return app.connection_for_write().default_channel.client


def client() -> Any:
    return _client_of(os.getpid())


def locks() -> Locks:
    return RedisLocks(client(), _owner) if uses_redis() else FileLocks(settings().state_dir)


def take_over() -> None:
    """What a worker of our name left behind when it was killed: free its locks, hand its tasks out again.

    Without it a killed worker's tasks wait for the visibility timeout. Right because node names are unique
    among the workers of a broker.
    """
    if not uses_redis():
        return
    freed = RedisLocks(client(), _owner).free_predecessors()
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        tags = channel.client.hkeys(channel.unacked_key)
        for tag in tags:
            channel.qos.restore_by_tag(tag.decode() if isinstance(tag, bytes) else tag, leftmost=True)
    if freed or tags:
        log.warning(
            "a worker named %s ended without finishing: %d locks freed, %d tasks put back",
            _owner,
            freed,
            len(tags),
        )


def urgent_waits(queue: str, below: int) -> bool:
    """Does a task of a smaller priority number than `below` wait in this queue? False where nobody can tell."""
    if not uses_redis():
        return False
    steps = [step for step in app.conf.broker_transport_options["priority_steps"] if step < below]
    try:
        return any(client().llen(waiting_in(queue, step)) for step in steps)
    except RedisError as error:
        log.debug("whether something waits in %s is not known: %s", queue, error)
        return False


def waiting_in(queue: str, step: int) -> str:
    """The key under which messages of a priority step wait: Celery documents it (Routing Tasks, Redis)."""
    return f"{queue}{app.conf.broker_transport_options['sep']}{step}" if step else queue


def taken_up(task: str, offering_uuid: str) -> None:
    """A periodic task has begun: from now on beat may queue the next one."""
    if not uses_redis():
        return
    try:
        unmark_queued(client(), task, offering_uuid)
    except RedisError as error:
        log.debug("marker of %s stays until it expires: %s", task, error)
