# SPDX-License-Identifier: MIT
"""Single flight: a task about a subject is not queued while one waits, and one that finds another at work asks for a
rerun, which the worker starts when the other one ends.

Both rest on every task reading the truth when it begins. The marker of a waiting task is set in two steps, so that a
producer which dies between marker and queue leaves no marker that others would believe. Without Redis every task is
queued, and comes back while another is at work.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis import ConnectionError as RedisConnectionError
from redis import RedisError

from agent.core.bounded_json import read_json
from agent.core.errors import ClusterBusy
from agent.core.events import QueueUnavailable
from agent.run.results import PassReport
from tasks import broker
from tasks.app import app
from tasks.base import SiteTask
from tasks.limits import COUNTDOWN_MAX_S, LOCK_TTL_S
from tasks.locks import HeldLocks, held

log = logging.getLogger(__name__)

# Of an embedded queue: until which monotonic second a task about a subject counts as waiting.
_waiting_here: dict[str, float] = {}
MARKER, RERUN, RETRY = "site-event:", "site-rerun:", "site-retry:"
WAITING = b"waiting"
# A marker outlives its task's start only where the task was lost: events are ignored for that long.
WAITING_MS = 60_000
PROVISIONAL_MS = 15_000
# Makes a provisional marker a marker, if it is still ours.
CONFIRM = """
if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3]) end
return 1
"""


def send_once(subject: str, publish: Callable[[], None]) -> bool:
    """Publish a task about `subject`; False when one waits already. Raises RedisError, and what `publish` raises."""
    if not broker.uses_redis():
        return _send_once_here(subject, publish)
    client, key = broker.client(), MARKER + subject
    provisional = f"provisional {uuid.uuid4().hex}"
    if not client.set(key, provisional, nx=True, px=PROVISIONAL_MS) and client.get(key) == WAITING:
        return False
    publish()
    try:
        client.eval(CONFIRM, 1, key, provisional, WAITING, WAITING_MS)
    except RedisError as error:
        log.debug("duplicates of %s cannot be recognised: %s", subject, error)
    return True


def is_due(subject: str) -> bool:
    """Return whether a task about `subject` waits, or one at work goes once more; False where nobody can tell."""
    if not broker.uses_redis():
        return _waiting_here.get(subject, 0.0) > time.monotonic()
    keys = (MARKER + subject, RERUN + subject)
    found = _best_effort(lambda client: [client.get(key) for key in keys], otherwise=[None, None])
    return bool(found[0] == WAITING or found[1])


def _send_once_here(subject: str, publish: Callable[[], None]) -> bool:
    """Publish, unless a task about `subject` waits in the memory of this process; with another broker always."""
    now_s = time.monotonic()
    if broker.is_embedded():
        if _waiting_here.get(subject, 0.0) > now_s:
            return False
        _waiting_here[subject] = now_s + WAITING_MS / 1000
    publish()
    return True


@contextmanager
def single_flight(task: SiteTask, subject: str, *, is_poll: bool = False) -> Iterator[HeldLocks | None]:
    """Hold the lock of `subject` for the body. Yield None where another task holds it, which is then asked for a rerun.

    A poll asks for none: the task at work does the same.
    """
    is_ours = False
    try:
        with held(broker.locks()) as locks:
            is_ours = locks.take(subject) or (not is_poll and _request_rerun(task, subject, locks))
            _waiting_here.pop(subject, None)
            if is_ours and broker.uses_redis():
                # From now on an event queues a new task: it may tell what comes after our reading.
                _best_effort(lambda client: client.delete(MARKER + subject))
            yield locks if is_ours else None
    finally:
        if is_ours and broker.uses_redis():
            key = RERUN + subject
            request = _best_effort(lambda client: client.pipeline().get(key).delete(key).execute()[0])
            if request:
                found: dict[str, Any] = read_json(request)
                app.send_task(found["task"], found["args"], queue=found["queue"], priority=found["priority"])


def finish(task: SiteTask, subject: str, report: PassReport) -> object:
    """Finish a task; of several tasks about one subject that fail only the first one retries by itself."""
    if report.retryable_error is not None and not _is_first_to_retry(task, subject):
        log.info(
            "%s: the retry is left to the task that is queued already: %s", subject, report.retryable_error
        )
        return dict(report.counted())
    return task.finish(report)


def _request_rerun(task: SiteTask, subject: str, locks: HeldLocks) -> bool:
    """Ask the task at work for a rerun; True when it ended meanwhile, and the lock is ours after all."""
    if not broker.uses_redis():
        task.come_back(ClusterBusy(f"{subject} is being worked on by another task"))
    delivery = task.request.delivery_info or {}
    request = {
        "task": task.name,
        "args": list(task.request.args or ()),
        "queue": delivery.get("routing_key"),
        "priority": delivery.get("priority"),
    }
    key = RERUN + subject
    try:
        _ask_twice(lambda client: client.set(key, json.dumps(request), ex=2 * LOCK_TTL_S))
    except RedisError as error:
        task.come_back(QueueUnavailable(f"Redis takes no request to run {subject} again: {error}"))
    if not locks.take(subject):
        return False
    _best_effort(lambda client: client.delete(key))
    return True


def _is_first_to_retry(task: SiteTask, subject: str) -> bool:
    if not broker.uses_redis():
        return True
    key, own = RETRY + subject, str(task.request.id)

    def ask(client: Any) -> bool:
        ttl_s = COUNTDOWN_MAX_S + LOCK_TTL_S
        if client.set(key, own, nx=True, ex=ttl_s):
            return True
        if client.get(key) != own.encode():
            return False
        client.expire(key, ttl_s)
        return True

    return bool(_best_effort(ask, otherwise=True))


def _best_effort(ask: Callable[[Any], Any], *, otherwise: Any = None) -> Any:
    try:
        return _ask_twice(ask)
    except RedisError as error:
        log.debug("duplicates cannot be recognised: %s", error)
        return otherwise


def _ask_twice(ask: Callable[[Any], Any]) -> Any:
    """Ask Redis twice: after it was restarted the first use of a connection fails. Raises RedisError."""
    try:
        return ask(broker.client())
    except RedisConnectionError:
        return ask(broker.client())
