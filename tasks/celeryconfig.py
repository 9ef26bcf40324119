# SPDX-License-Identifier: MIT
"""Celery's settings. Every process of one broker must have the same; docs/decisions.md tells where each comes from."""

from __future__ import annotations

import os

from kombu import Exchange, Queue

import beat_schedule as table
from tasks import sentinel
from tasks.current import modes_of, settings
from tasks.limits import TASK_SOFT_TIME_LIMIT_S, TASK_TIME_LIMIT_S, VISIBILITY_TIMEOUT_S

broker_url, _sentinel_options = sentinel.connection(settings().broker_url.reveal())
_is_redis = broker_url.startswith(("redis", "sentinel", "valkey"))
_is_embedded = broker_url.startswith("memory")
_is_amqp = broker_url.startswith(("amqp", "pyamqp"))
# Our own variable and the file were weighed already; Celery would let this one win over both.
os.environ.pop("CELERY_BROKER_URL", None)
imports = (
    "tasks.orders",
    "tasks.membership",
    "tasks.report",
    "tasks.backfill",
    "tasks.drift",
    "tasks.events",
)

_names = sorted({table.queue_name(o.queue) for o in settings().offerings}) or [table.queue_name("default")]
task_queues = tuple(
    # RabbitMQ knows priorities only in queues that were made for them.
    Queue(
        name,
        Exchange(name, type="direct"),
        routing_key=name,
        max_priority=table.HIGHEST if _is_amqp else None,
    )
    for name in _names
)
task_default_queue = _names[0]
task_create_missing_queues = False

task_acks_late = True
task_reject_on_worker_lost = True
task_acks_on_failure_or_timeout = True
task_soft_time_limit = TASK_SOFT_TIME_LIMIT_S
task_time_limit = TASK_TIME_LIMIT_S
task_ignore_result = True
task_store_errors_even_if_ignored = False
task_serializer = "json"
accept_content = ["json"]
result_accept_content = ["json"]
task_send_sent_event = True

worker_consumer = "tasks.consumer:SiteConsumer"
# Celery confirms the end of a task of an embedded queue within 2 s only: meanwhile it goes on with the next one.
worker_prefetch_multiplier = 4 if _is_embedded else 1
worker_disable_prefetch = _is_redis
worker_send_task_events = True
worker_hijack_root_logger = False
worker_redirect_stdouts = False
worker_cancel_long_running_tasks_on_connection_loss = False
worker_soft_shutdown_timeout = 30.0
worker_enable_soft_shutdown_on_idle = True
worker_concurrency = 2
# KiB. A pass over a cluster of any size leaves its largest heap behind; after that the process is replaced.
worker_max_memory_per_child = 58_000

broker_connection_retry_on_startup = True
broker_connection_max_retries = None

beat_schedule = table.entries(settings(), modes_of, is_rising=_is_amqp)
beat_scheduler = "tasks.beat:SiteScheduler"
beat_max_loop_interval = 5

broker_transport_options = (
    {
        "visibility_timeout": VISIBILITY_TIMEOUT_S,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_timeout": 30,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 25,
        "priority_steps": [0, 3, 6, 8, 9],
        "sep": ":",
        "queue_order_strategy": "priority",
        **_sentinel_options,
    }
    if _is_redis
    # Seconds between two looks into the memory of an embedded queue; RabbitMQ takes none of these.
    else ({"polling_interval": 0.1} if _is_embedded else {})
)
