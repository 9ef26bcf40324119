# SPDX-License-Identifier: MIT
"""What the product takes from Celery and kombu without being offered it: each is where it was, and is still used so.

A release that moves one of these fails here, and not on a head node. The reason for each is at its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from queue import PriorityQueue
from typing import Any

import kombu.transport.memory
import kombu.transport.redis
import kombu.transport.virtual
import pytest
from celery import beat, worker
from celery.worker import consumer, pidbox, state
from celery.worker.consumer import tasks
from celery.worker.request import Request
from kombu.pidbox import Mailbox, Node

from tasks.queue.consumer import RedisTransport

redis = kombu.transport.redis
memory = kombu.transport.memory


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(
    "reader", [redis.Channel._brpop_read, redis.Channel._receive_one, redis.Channel._get]
)
def test_messages_of_redis_are_read_by_the_name_that_we_replace(reader: Callable[..., Any]) -> None:
    """tasks.queue.consumer: `redis.loads`."""
    assert "loads" in reader.__code__.co_names
    assert RedisTransport.Channel is not redis.Channel and isinstance(redis.loads("no JSON"), dict)


@pytest.mark.parametrize(
    "caller",
    [
        redis.Channel._brpop_read,
        redis.Channel._deliver_fanout_message,
        kombu.transport.virtual.Channel.basic_get,
    ],
)
def test_every_message_passes_one_method(caller: Callable[..., Any]) -> None:
    """tasks.queue.consumer: `_deliver`. A single `get`, which no worker does, is the one way around it."""
    assert ("_deliver" in caller.__code__.co_names) == (caller.__name__ != "basic_get")
    for transport in (redis.Transport, redis.SentinelTransport):
        assert parameters(transport._deliver) == ["self", "message", "queue"]


def test_what_was_not_acknowledged_is_put_back_by_its_tag() -> None:
    """tasks.queue.broker and consumer: `unacked_key`, `unacked_index_key`, `restore_by_tag`."""
    assert parameters(redis.QoS.restore_by_tag) == ["self", "tag", "client", "leftmost"]
    for name in ("unacked_key", "unacked_index_key", "unacked_mutex_key"):
        assert name in redis.Channel.from_transport_options


@pytest.mark.parametrize(
    ("method", "names"),
    [
        (memory.Channel._queue_for, ["self", "queue"]),
        (memory.Channel._new_queue, ["self", "queue", "kwargs"]),
        (PriorityQueue._put, ["self", "item"]),
        (PriorityQueue._get, ["self"]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_queue_in_memory_has_these_parts(method: Callable[..., Any], names: list[str]) -> None:
    """tasks.queue.memory: where kombu's transport makes its queues, and what Python's queues consist of."""
    assert parameters(method) == names
    assert "_queue_for" in memory.Channel._put.__code__.co_names


@pytest.mark.parametrize(
    "method",
    [memory.Channel._has_queue, memory.Channel._delete, memory.Channel.close],
    ids=lambda m: m.__name__,
)
def test_queues_in_memory_are_kept_under_this_name(method: Callable[..., Any]) -> None:
    """tasks.queue.memory: `queues`, of methods that are not replaced there."""
    assert "queues" in method.__code__.co_names and isinstance(memory.Channel.queues, dict)


def test_commands_of_remote_control_are_read_by_a_class_that_is_replaced() -> None:
    """tasks.queue.consumer: `node_cls`."""
    assert Mailbox.node_cls is Node and "node_cls" in Mailbox.Node.__code__.co_names
    assert "c.app.control.mailbox.Node(" in inspect.getsource(pidbox)


def test_the_worker_asks_these_of_its_consumer_and_its_request() -> None:
    """tasks.queue.consumer."""
    for name in ("ensure_connected", "connect", "on_ready", "stop", "create_task_handler"):
        assert callable(getattr(consumer.Consumer, name))
    names = consumer.Consumer.create_task_handler.__code__.co_names
    assert {"on_unknown_message", "on_unknown_task", "on_invalid_task"} <= set(names)
    assert "on_decode_error=c.on_decode_error" in inspect.getsource(tasks)
    assert "maybe_expire" in Request.revoked.__code__.co_names
    assert parameters(Node.handle_message) == ["self", "body", "message"]
    assert callable(state.maybe_shutdown) and hasattr(state, "should_stop")


def test_beat_waits_for_its_broker_by_this_method() -> None:
    """tasks.beat: `_ensure_connected`."""
    assert "self.Producer(self._ensure_connected()" in inspect.getsource(beat.Scheduler)


def test_celerys_command_imports_its_plugins_where_a_worker_shuts_them_out() -> None:
    """tasks.queue.lean_celery: plugins are found as entry points, and `click_repl` by the one name that it gives."""
    # Imported here: with all its plugins, its import takes 0.3 s of each process that collects the tests.
    from celery.bin import amqp, celery

    assert "group='celery.commands'" in inspect.getsource(celery)
    assert "from click_repl import register_repl" in inspect.getsource(amqp)
    assert any(entry.name == "flower" for entry in entry_points(group="celery.commands"))


def test_a_worker_in_this_process_has_an_exit_code() -> None:
    """tasks.embedded."""
    assert "exitcode" in inspect.getsource(worker.WorkController)
