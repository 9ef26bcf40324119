# SPDX-License-Identifier: MIT
"""Ask the broker and the workers how they are, for the picture of the site. Changes nothing in any queue."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import product
from typing import Any

from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.pidbox import Mailbox
from redis import RedisError

import beat_schedule as table
from agent.config.model import Settings
from agent.core.checks import Check, ok, problem
from agent.core.errors import SiteAgentError
from agent.core.events import QueueUnavailable
from agent.run.diagnosis.faults import BROKER_REMEDY
from agent.run.diagnosis.picture import BrokerStatus, QueueStatus, TaskStatus, WorkerStatus
from agent.run.diagnosis.probes import Probe, run
from tasks import current
from tasks.limits import (
    LOCK_TTL_S,
    TASK_SOFT_TIME_LIMIT_S,
    TASK_TIME_LIMIT_S,
    VISIBILITY_TIMEOUT_S,
)
from tasks.queue import heartbeats, kinds, sentinel
from tasks.queue.kinds import Broker
from tasks.queue.stores import Store, as_it_is

log = logging.getLogger(__name__)

# The longest wait for a broker that is away, and for answers of workers.
CONNECT_S = 3.0
ANSWER_S = 1.5
# A worker that has other values of these loses tasks, or does them twice.
COMPARED = (
    "task_acks_late",
    "task_reject_on_worker_lost",
    "task_time_limit",
    "task_soft_time_limit",
    "task_serializer",
    "accept_content",
    "worker_prefetch_multiplier",
)
# By which workers are asked; its name is that of Celery's setting `control_exchange`, which stays as it comes.
WORKERS = Mailbox("celery", type="fanout")
AWAY: tuple[type[Exception], ...] = (OperationalError, RedisError, OSError, QueueUnavailable)


class BrokerAway(SiteAgentError):
    """The broker does not answer."""

    retryable = True


def look(settings: Settings, *, asks_workers: bool = True) -> BrokerStatus:
    """Return what is known of queues, workers and beat; the reason where nothing is. Workers take seconds to answer:
    what only they know is omitted where they are not asked.
    """
    settings = current.reached(settings)
    try:
        connection = connected(settings)
    except BrokerAway as error:
        return BrokerStatus(str(settings.broker_url), str(error))
    with connection:
        return _look(settings, connection, asks_workers=asks_workers)


def examine(settings: Settings) -> tuple[BrokerStatus, list[Check]]:
    """Return what `look` does, and what the checks find that try something by the same connection; none of these where
    the broker is away.
    """
    settings = current.reached(settings)
    try:
        connection = connected(settings)
    except BrokerAway as error:
        return BrokerStatus(str(settings.broker_url), str(error)), []
    with connection:
        seen = _look(settings, connection, asks_workers=True)
        tried = (
            Probe("broker", lambda: _broker(connection, seen.url), BROKER_REMEDY),
            Probe("worker settings", lambda: _worker_settings(connection), "restart the workers"),
        )
        return seen, [] if seen.problem else list(run(tried))


def connected(settings: Settings) -> Connection:
    """Return an open connection of its own to the broker of these settings, or of the `cluster` that runs here.
    Raises BrokerAway.
    """
    settings = current.reached(settings)
    current.use(settings)
    url, sentinel_options = sentinel.connection(settings.broker_url.reveal())
    # What the workers have, with less patience.
    options = {**kinds.kind_of(url).transport_options, **sentinel_options, "socket_timeout": CONNECT_S}
    connection = Connection(url, connect_timeout=CONNECT_S, transport_options=options)
    try:
        connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=CONNECT_S)
    # A wrong password is an error of a channel to RabbitMQ's client.
    except (*AWAY, *connection.connection_errors, *connection.channel_errors) as error:
        connection.release()
        raise BrokerAway(f"the broker {settings.broker_url} does not answer ({error})") from error
    return connection


def _look(settings: Settings, connection: Connection, *, asks_workers: bool) -> BrokerStatus:
    url = str(settings.broker_url)
    where = kinds.of(connection)
    store = where.store
    try:
        covered = {o.uuid: tuple(sorted(heartbeats.covered_modes(store, o.uuid))) for o in settings.offerings}
        stats = _ask(connection, "stats") if asks_workers else {}
        names = sorted(stats)
        served = {
            worker: tuple(sorted(str(queue.get("name")) for queue in queues))
            for worker, queues in _ask(connection, "active_queues", names).items()
        }
        workers = tuple(WorkerStatus(name, _processes(stats[name]), served.get(name, ())) for name in names)
        queues = sorted({table.queue_name(offering.queue) for offering in settings.offerings})
        return BrokerStatus(
            url=url,
            queues=tuple(_queue(where, queue, workers if asks_workers else None) for queue in queues),
            workers=workers,
            running=_tasks(_ask(connection, "active", names), _running),
            scheduled=_tasks(_ask(connection, "scheduled", names), _scheduled),
            unacknowledged=where.unacknowledged(),
            beats=heartbeats.beats(store),
            covered={uuid: modes for uuid, modes in covered.items() if modes},
            waiting_since=_waiting_since(store, settings) if store.knows_queue else {},
        )
    except (*AWAY, *connection.connection_errors) as error:
        return BrokerStatus(url, f"the broker {url} went away while it was asked ({error})")
    except connection.channel_errors as error:
        return BrokerStatus(url, f"the broker {url} refuses what it is asked ({error})")


def _ask(connection: Connection, what: str, names: list[str] | None = None) -> Mapping[str, Any]:
    """Ask all workers, or these, and return their answers by node name: as soon as the last one has answered where the
    broker counts them, else when none has answered for a while.
    """
    mailbox = WORKERS(connection)
    expected = (
        len(names) if names is not None else kinds.of(connection).receivers(lambda: mailbox.abcast("ping"))
    )
    if expected == 0:
        return {}
    if names is None:
        answers = mailbox.multi_call(what, timeout=ANSWER_S, limit=expected)
    else:
        answers = mailbox.call(names, what, timeout=ANSWER_S)
    return {worker: answer for each in answers for worker, answer in each.items()}


def _processes(stats: Mapping[str, Any]) -> int:
    return int((stats.get("pool") or {}).get("max-concurrency") or 0)


def _tasks(
    answers: Mapping[str, Any], read: Callable[[str, Mapping[str, Any]], TaskStatus]
) -> tuple[TaskStatus, ...]:
    """Return the tasks of all workers; without those that a worker of another kind describes otherwise."""
    found = []
    for worker, tasks in sorted(answers.items()):
        for task in tasks or ():
            try:
                found.append(read(worker, task))
            except (KeyError, TypeError, ValueError) as error:
                log.debug("a task of %s cannot be read: %r", worker, error)
    return tuple(found)


def _running(worker: str, task: Mapping[str, Any]) -> TaskStatus:
    began = task.get("time_start")
    since = datetime.fromtimestamp(began, UTC) if isinstance(began, int | float) else None
    return TaskStatus(str(task["name"]), _arguments(task["args"]), worker, since=since)


def _scheduled(worker: str, task: Mapping[str, Any]) -> TaskStatus:
    request = task["request"]
    due = datetime.fromisoformat(task["eta"])
    due = due if due.tzinfo else due.replace(tzinfo=UTC)
    return TaskStatus(str(request["name"]), _arguments(request["args"]), worker, due=due)


def _arguments(found: Iterable[Any]) -> tuple[str, ...]:
    return tuple(each if isinstance(each, str) else json.dumps(each)[:100] for each in found)


def _queue(where: Broker, queue: str, workers: Iterable[WorkerStatus] | None) -> QueueStatus:
    served = None if workers is None else tuple(w.name for w in workers if queue in w.queues)
    waiting = where.waiting(queue)
    return QueueStatus(queue, waiting.messages, served, waiting.by_priority, waiting.oldest)


def _waiting_since(store: Store, settings: Settings) -> dict[tuple[str, str], datetime]:
    """Return since when polls wait in their queues. Raises QueueUnavailable."""
    found = {}
    for offering, (mode, task) in product(settings.offerings, table.TASK_OF.items()):
        record = store.update(table.polled(task, offering.uuid), as_it_is)
        if record and "since" in record:
            found[offering.uuid, str(mode)] = datetime.fromtimestamp(record["since"], UTC)
    return found


def _broker(connection: Connection, url: str) -> Iterator[Check]:
    started_s = time.monotonic()
    buffer = connection.SimpleBuffer(f"site-doctor-{uuid.uuid4().hex}")
    try:
        with buffer:
            buffer.put({"asked": "doctor"})
            answer = buffer.get(timeout=CONNECT_S)
            answer.ack()
    finally:
        # Closed only, it leaves two keys in Redis for ever.
        buffer.queue(connection.default_channel).delete()
    took_ms = 1000 * (time.monotonic() - started_s)
    yield ok("broker", f"{url}: a message came back in {took_ms:.0f} ms")
    yield from kinds.of(connection).checks()


def _worker_settings(connection: Connection) -> Iterator[Check]:
    """Compare Celery's settings of all workers with those of this version, and look whether they fit together."""
    name = "worker settings"
    if not TASK_SOFT_TIME_LIMIT_S < TASK_TIME_LIMIT_S < LOCK_TTL_S < VISIBILITY_TIMEOUT_S:
        yield problem(name, "the times of tasks/limits.py do not fit together", "install the release again")
    # Imported here: it reads the settings of `current`.
    from tasks import celeryconfig

    wanted = {key: getattr(celeryconfig, key) for key in COMPARED}
    for worker, found in sorted(_ask(connection, "conf").items()):
        unlike = [
            f"{key} is {found.get(key)!r} there, {wanted[key]!r} here"
            for key in COMPARED
            if found.get(key) != wanted[key]
        ]
        if unlike:
            remedy = "restart it with the same version, and without options of its own for these"
            yield problem(name, f"{worker}: {'; '.join(unlike)}", remedy)
        else:
            yield ok(name, f"{worker} has those of this version")
