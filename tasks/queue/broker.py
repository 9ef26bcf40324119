# SPDX-License-Identifier: MIT
"""The broker of this process: its work queue, and recovery after a killed worker."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cache
from typing import Any

from agent.host import service_manager
from tasks import arguments
from tasks.app import app
from tasks.queue import kinds
from tasks.queue.kinds import Broker
from tasks.queue.work import Request, WorkQueue

log = logging.getLogger(__name__)

UNACKED_KEYS = ("unacked_key", "unacked_index_key", "unacked_mutex_key")

# Of a worker.
_node_name = ""


def set_node_name(node_name: str) -> None:
    """Make this process, and the children that it forks, the worker of that name."""
    global _node_name
    _node_name = node_name
    _of_process.cache_clear()
    for key in UNACKED_KEYS:
        app.conf.broker_transport_options[key] = f"{key.removesuffix('_key')}:{node_name}"


def here() -> Broker:
    """Return the broker of this process: a forked child must not share its parent's socket."""
    return _of_process(os.getpid())


@cache
def _of_process(_pid: int) -> Broker:
    return kinds.of(app.connection_for_write(), _node_name)


def queue() -> WorkQueue:
    """Return the work queue of this process."""
    return WorkQueue(here().store, send)


def recover_predecessor() -> None:
    """End the work of a killed worker of our name, and put its unacknowledged tasks back into their queues.

    Otherwise these wait for the visibility timeout. Safe because node names are unique among the workers of a broker.
    Raises QueueUnavailable and RedisError.
    """
    freed, put_back = queue().recover(), here().put_back()
    if freed or put_back:
        log.warning(
            "a worker named %s ended without finishing: %d locks freed, %d tasks put back",
            _node_name,
            freed,
            put_back,
        )


def send(request: Request) -> None:
    """Publish a request of the work queue."""
    app.send_task(
        request["task"],
        request["args"],
        queue=request["queue"],
        priority=request["priority"],
        argsrepr=arguments.shown(request["args"]),
    )


def wait_for(connection: Any, *, interrupt: Callable[[], None] = lambda: None) -> Any:
    """Return the connection once the broker answers, however long that takes; log and notify systemd why it waits.

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
