# SPDX-License-Identifier: MIT
"""The metrics that the broker's Redis tells: what waits in the queues and since when, and what events cover.

Another broker tells none of them: RabbitMQ has an exporter of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import beat_schedule as table
from agent.config.model import Settings
from agent.core.bounded_json import read_json
from agent.observability.metrics import Sample
from agent.run import event_coverage
from tasks import inspection
from tasks.app import app
from tasks.broker import priority_key
from tasks.start_up import QUEUED_AT

FAILURES = (*inspection.AWAY, inspection.BrokerAway)


def of_broker(settings: Settings) -> Iterator[Sample]:
    """Yield the metrics of the broker; none where the services of this host need no broker. Raises one of FAILURES."""
    try:
        connected = inspection.connected(settings)
    except inspection.BrokerAway:
        if inspection.without_broker(settings):
            return
        raise
    with connected as connection:
        if not inspection.is_redis(connection):
            return
        client = connection.default_channel.client
        for queue in sorted({table.queue_name(offering.queue) for offering in settings.offerings}):
            yield from _of_queue(client, queue)
        yield Sample("tasks_unacknowledged", inspection.unacknowledged(client))
        covered = inspection.covered(client, (offering.uuid for offering in settings.offerings))
        for offering in settings.offerings:
            for mode in sorted(event_coverage.modes_by_events(offering)):
                is_covered = mode in covered.get(offering.uuid, ())
                yield Sample("events_cover", float(is_covered), (offering.uuid, str(mode)))


def _of_queue(client: Any, queue: str) -> Iterator[Sample]:
    sent: list[float] = []
    for step in app.conf.broker_transport_options["priority_steps"]:
        key = priority_key(queue, step)
        yield Sample("queue_length", client.llen(key), (queue, str(step)))
        # New ones come in on the left.
        if oldest := client.lindex(key, -1):
            sent += _sent(oldest)
    if sent:
        yield Sample("queue_oldest_task_timestamp_seconds", min(sent), (queue,))


def _sent(message: bytes) -> list[float]:
    """Return when a message was sent; nothing where it is none of ours."""
    try:
        return [float(read_json(message)["headers"][QUEUED_AT])]
    except (KeyError, TypeError, ValueError):
        return []
