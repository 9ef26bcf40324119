# SPDX-License-Identifier: MIT
"""Ask the broker and the workers how they are: for `status` and `doctor`. Changes nothing in any queue."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kombu import Connection
from kombu.exceptions import OperationalError
from redis import RedisError

import beat_schedule as table
from agent.config.model import Settings
from agent.core.checks import Check, ok, problem, unknown, warning
from agent.core.errors import SiteAgentError
from agent.host import running as agents
from agent.run import event_coverage as coverage
from agent.run import services
from agent.run.diagnosis.probes import Probe
from agent.run.status import BrokerStatus, QueueStatus, TaskStatus, WorkerStatus
from tasks import current, event_coverage, sentinel
from tasks.app import app
from tasks.limits import LOCK_TTL_S, TASK_SOFT_TIME_LIMIT_S, TASK_TIME_LIMIT_S, VISIBILITY_TIMEOUT_S
from tasks.locks import MARKER_PREFIX, MARKER_SHARE

log = logging.getLogger(__name__)

# The longest wait for a broker that is away, and for answers of workers.
CONNECT_S = 3.0
ANSWER_S = 1.5
BROKER_REMEDY = (
    "start the broker (systemctl status redis; on one machine `waldur-site-cluster cluster` brings its own); check "
    "host, port, password and TLS of `broker_url`"
)
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
AWAY: tuple[type[Exception], ...] = (OperationalError, RedisError, OSError)


class BrokerAway(SiteAgentError):
    """The broker does not answer."""

    retryable = True


def look(settings: Settings) -> BrokerStatus:
    """Return what is known of queues, workers and beat; the reason where nothing is."""
    settings = current.reached(settings)
    url = str(settings.broker_url)
    try:
        connection = connected(settings)
    except BrokerAway as error:
        alone = without_broker(settings)
        said = (
            f"no broker is needed: waldur_site_agent ({', '.join(alone)}) keeps its queue in its own memory"
        )
        return BrokerStatus(url, said if alone else str(error), alone=alone)
    with connection:
        try:
            return _look(settings, connection, url)
        except (*AWAY, *connection.connection_errors) as error:
            return BrokerStatus(url, f"the broker {url} went away while it was asked ({error})")


def without_broker(settings: Settings) -> tuple[str, ...]:
    """Return the services of this host and configuration that need no broker; they are looked for among processes."""
    return services.without_broker(settings, agents.agents())


def connected(settings: Settings) -> Connection:
    """Return an open connection of its own to the broker of these settings, or of the `cluster` that runs here.
    Raises BrokerAway.
    """
    settings = current.reached(settings)
    current.use(settings)
    # What the workers have, with less patience.
    options = {**app.conf.broker_transport_options, "socket_timeout": CONNECT_S}
    # Celery has read its own address once: a `cluster` may have come since, or gone.
    url, _ = sentinel.connection(settings.broker_url.reveal())
    connection = Connection(url, connect_timeout=CONNECT_S, transport_options=options)
    try:
        connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=CONNECT_S)
        if is_redis(connection):
            connection.default_channel.client.ping()
    except (*AWAY, *connection.connection_errors) as error:
        connection.release()
        raise BrokerAway(f"the broker {settings.broker_url} does not answer ({error})") from error
    return connection


def is_redis(connection: Connection) -> bool:
    return bool(connection.transport.driver_type == "redis")


def beats(connection: Connection) -> tuple[str, ...] | None:
    """Return beats that ran lately, as host:pid; None where the broker keeps no heartbeats. Raises
    RedisError.
    """
    if not is_redis(connection):
        return None
    keys = connection.default_channel.client.scan_iter(match=f"{event_coverage.BEAT}*")
    return tuple(sorted(_text(key).removeprefix(event_coverage.BEAT) for key in keys))


def _look(settings: Settings, connection: Connection, url: str) -> BrokerStatus:
    offerings = [offering.uuid for offering in settings.offerings]
    stats = _ask(connection, "stats")
    names = sorted(stats)
    served = {
        worker: tuple(sorted(str(queue.get("name")) for queue in queues))
        for worker, queues in _ask(connection, "active_queues", names).items()
    }
    workers = tuple(
        WorkerStatus(name, _processes(stats[name]), served.get(name, ())) for name in sorted(stats)
    )
    queues = sorted({table.queue_name(offering.queue) for offering in settings.offerings})
    waiting = _waiting_in_redis if is_redis(connection) else _waiting_elsewhere
    redis = connection.default_channel.client if is_redis(connection) else None
    return BrokerStatus(
        url=url,
        queues=tuple(
            QueueStatus(
                queue, waiting(connection, queue), tuple(w.name for w in workers if queue in w.queues)
            )
            for queue in queues
        ),
        workers=workers,
        running=_tasks(_ask(connection, "active", names), _running),
        scheduled=_tasks(_ask(connection, "scheduled", names), _scheduled),
        unacknowledged=unacknowledged(redis) if redis else None,
        beats=beats(connection),
        covered=covered(redis, offerings) if redis else {},
        waiting_since=_waiting_since(redis, settings) if redis else {},
    )


def _ask(connection: Connection, what: str, names: list[str] | None = None) -> Mapping[str, Any]:
    """Ask all workers, or these, and return their answers by node name."""
    if names == []:
        return {}
    inspect = app.control.inspect(
        destination=names, timeout=ANSWER_S, connection=connection, limit=len(names) if names else None
    )
    found: Mapping[str, Any] | None = getattr(inspect, what)()
    return found or {}


def _processes(stats: Mapping[str, Any]) -> int:
    return int((stats.get("pool") or {}).get("max-concurrency") or 0)


def _tasks(
    answers: Mapping[str, Any], read: Callable[[str, Mapping[str, Any]], TaskStatus]
) -> tuple[TaskStatus, ...]:
    """Return the tasks of all workers; without those that a worker of another kind tells otherwise."""
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


def _waiting_in_redis(connection: Connection, queue: str) -> int:
    """Count the messages of all priorities, which Celery keeps in lists of their own."""
    options = app.conf.broker_transport_options
    client = connection.default_channel.client
    steps = options["priority_steps"]
    return sum(client.llen(f"{queue}{options['sep']}{step}" if step else queue) for step in steps)


def _waiting_elsewhere(connection: Connection, queue: str) -> int:
    """Count the messages of a queue of RabbitMQ; none where nobody has made the queue yet."""
    try:
        with connection.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).message_count)
    except connection.channel_errors:
        return 0


def unacknowledged(client: Any) -> int:
    """Return how many messages workers have taken and not acknowledged. Raises RedisError."""
    return sum(client.hlen(key) for key in client.scan_iter(match="unacked*", _type="hash"))


def covered(client: Any, offerings: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the modes that a bridge listens for, by offering. Raises RedisError."""
    found = {}
    for offering_uuid in offerings:
        modes = _text(client.get(event_coverage.HEARTBEAT + offering_uuid) or b"")
        if modes:
            found[offering_uuid] = tuple(modes.split(","))
    return found


def _waiting_since(client: Any, settings: Settings) -> dict[tuple[str, str], datetime]:
    """Return since when polls wait in their queues: their markers expire after a known share of the period."""
    now = datetime.now(UTC)
    found = {}
    for slot in table.slots(settings):
        left_ms = client.pttl(f"{MARKER_PREFIX}{slot.task}:{slot.offering_uuid}")
        mode = next((mode for mode, task in table.TASK_OF.items() if task == slot.task), None)
        if mode is None or left_ms < 0:
            continue
        # A poll that events cover has a marker of the short period as well.
        age_s = max(0.0, MARKER_SHARE * slot.period_s - left_ms / 1000)
        found[slot.offering_uuid, str(mode)] = now - timedelta(seconds=age_s)
    return found


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def probes(settings: Settings, seen: BrokerStatus) -> Iterator[Probe]:
    """Yield the checks of the broker and of what runs behind it; `seen` was asked before."""
    yield Probe("broker", lambda: _broker(settings, seen), BROKER_REMEDY)
    if not seen.problem:
        yield Probe("workers", lambda: _workers(seen), BROKER_REMEDY)
        yield Probe("worker settings", lambda: _worker_settings(settings), "restart the workers")
        yield Probe("beat", lambda: _beat(seen), BROKER_REMEDY)
        yield Probe("bridge", lambda: _bridge(settings, seen), BROKER_REMEDY)


def _broker(settings: Settings, seen: BrokerStatus) -> Iterator[Check]:
    if seen.alone:
        yield ok("broker", seen.problem)
        return
    if seen.problem:
        yield problem("broker", seen.problem, BROKER_REMEDY)
        return
    with connected(settings) as connection:
        started_s = time.monotonic()
        with connection.SimpleBuffer(f"site-doctor-{uuid.uuid4().hex}") as queue:
            queue.put({"asked": "doctor"})
            answer = queue.get(timeout=CONNECT_S)
            answer.ack()
        took_ms = 1000 * (time.monotonic() - started_s)
        yield ok("broker", f"{seen.url}: a message came back in {took_ms:.0f} ms")
        if is_redis(connection):
            yield from _redis(connection.default_channel.client)


def _redis(client: Any) -> Iterator[Check]:
    """Check that Redis throws no queue away: https://redis.io/docs/latest/develop/reference/eviction/"""
    try:
        policy = _text(client.config_get("maxmemory-policy").get("maxmemory-policy", ""))
        is_kept = _text(client.config_get("appendonly").get("appendonly", ""))
    except RedisError as error:
        yield unknown("broker", f"whether Redis keeps its data cannot be asked ({error})")
        return
    if policy and policy != "noeviction":
        said = f"Redis drops data when its memory is full (maxmemory-policy {policy}): tasks may vanish"
        yield problem("broker", said, "set `maxmemory-policy noeviction` in redis.conf")
    if is_kept == "no":
        said = (
            "Redis forgets its queues when it restarts (appendonly no): the next passes repair what is lost"
        )
        yield warning("broker", said, "set `appendonly yes` in redis.conf")


def _workers(seen: BrokerStatus) -> Iterator[Check]:
    for queue in seen.queues:
        if queue.workers:
            yield ok(
                "workers", f"{queue.name} is served by {', '.join(queue.workers)}, {queue.waiting} waiting"
            )
        else:
            said = f"no worker serves the queue {queue.name} ({queue.waiting} waiting)"
            yield problem(
                "workers", said, f"start one on its head node: celery -A tasks worker -Q {queue.name}"
            )


def _worker_settings(settings: Settings) -> Iterator[Check]:
    """Compare Celery's settings of all workers with those of this version, and look whether they fit together."""
    name = "worker settings"
    if not TASK_SOFT_TIME_LIMIT_S < TASK_TIME_LIMIT_S < LOCK_TTL_S < VISIBILITY_TIMEOUT_S:
        yield problem(name, "the times of tasks/limits.py do not fit together", "install the release again")
    wanted = {key: app.conf[key] for key in COMPARED}
    with connected(settings) as connection:
        answers = _ask(connection, "conf")
    for worker, found in sorted(answers.items()):
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


def _beat(seen: BrokerStatus) -> Iterator[Check]:
    if seen.beats is None:
        yield unknown("beat", "this broker keeps no heartbeats; `passes` tells whether passes come")
    elif not seen.beats:
        said = "no beat has been heard of in the last minute, so no pass is started"
        yield problem("beat", said, "start one: celery -A tasks beat")
    else:
        yield ok("beat", f"runs as {', '.join(seen.beats)}")


def _bridge(settings: Settings, seen: BrokerStatus) -> Iterator[Check]:
    for offering in settings.offerings:
        wanted = sorted(coverage.modes_by_events(offering))
        if not wanted:
            continue
        covered = seen.covered.get(offering.uuid, ())
        missing = [mode for mode in wanted if mode not in covered]
        if missing:
            said = (
                f"no bridge listens to the events of {offering.name} for {', '.join(missing)}: it is polled"
            )
            yield warning("bridge", said, "start `manage.py bridge`, or look at its log")
        else:
            yield ok("bridge", f"listens to the events of {offering.name} for {', '.join(covered)}")
