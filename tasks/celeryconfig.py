# SPDX-License-Identifier: MIT
"""Celery's settings. Every process of one broker must have the same; docs/decisions.md says where each comes from."""

from __future__ import annotations

import os

from kombu import Exchange, Queue

import beat_schedule as table
from tasks.current import modes_of, settings
from tasks.limits import TASK_SOFT_TIME_LIMIT_S, TASK_TIME_LIMIT_S
from tasks.queue import kinds, sentinel

broker_url, _sentinel_options = sentinel.connection(settings().broker_url.reveal())
_kind = kinds.kind_of(broker_url)
# Our own variable and the file were weighed already; Celery would let this one win over both.
os.environ.pop("CELERY_BROKER_URL", None)
imports = (
    "tasks.sites",
    "tasks.orders",
    "tasks.membership",
    "tasks.report",
    "tasks.backfill",
    "tasks.drift",
    "tasks.events",
    "tasks.looks",
)

_names = sorted({table.queue_name(o.queue) for o in settings().offerings}) or [table.queue_name("default")]
task_queues = tuple(
    Queue(name, Exchange(name, type="direct"), routing_key=name, max_priority=_kind.max_priority)
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

worker_consumer = "tasks.queue.consumer:SiteConsumer"
worker_prefetch_multiplier = _kind.prefetch_multiplier
worker_disable_prefetch = _kind.disables_prefetch
worker_send_task_events = True
worker_hijack_root_logger = False
worker_redirect_stdouts = False
worker_cancel_long_running_tasks_on_connection_loss = False
worker_soft_shutdown_timeout = 30.0
worker_enable_soft_shutdown_on_idle = True
worker_concurrency = 2
# Celery kills a process of the pool that does not say within 4 s that it has begun, and starts another one as slowly.
worker_proc_alive_timeout = 120.0
# KiB. A pass over a cluster of any size leaves its largest heap behind; after that the process is replaced.
worker_max_memory_per_child = 58_000

broker_connection_retry_on_startup = True
broker_connection_max_retries = None

beat_schedule = table.entries(settings(), modes_of, _kind.priority)
beat_scheduler = "tasks.beat:SiteScheduler"
beat_max_loop_interval = 5

broker_transport_options = {**_kind.transport_options, **_sentinel_options}
