# SPDX-License-Identifier: MIT
"""Bursts become one task: a job whose like waits in the queue already is not queued again, and one that finds its
like at work leaves a note, for which the worker starts it once more at its end.

Both rest on every task reading the truth when it begins. The marker of a waiting job is set in two steps, so that a
producer which dies between marker and queue leaves no marker that others would believe. Without Redis every job is
queued, and comes back while another is at work.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis import ConnectionError as RedisConnectionError
from redis import RedisError

from agent.core.errors import ClusterBusy
from agent.core.events import QueueUnavailable
from agent.run.results import PassReport
from tasks import broker
from tasks.app import app
from tasks.base import SiteTask
from tasks.limits import COUNTDOWN_MAX_S, LOCK_TTL_S
from tasks.locks import Held, held

log = logging.getLogger(__name__)

MARKER, AGAIN, RETRY = "site-event:", "site-again:", "site-retry:"
WAITING = b"waiting"
# A marker outlives its task's start only where the task was lost: events are ignored for that long.
WAITING_MS = 60_000
CLAIM_MS = 15_000
# Makes a claim a marker, if it is still ours.
CONFIRM = """
if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3]) end
return 1
"""


def send_once(subject: str, publish: Callable[[], None]) -> bool:
    """Publish a task about `subject`; False when one waits already. Raises RedisError, and what `publish` does."""
    if not broker.uses_redis():
        publish()
        return True
    client, key = broker.client(), MARKER + subject
    claim = f"claim {uuid.uuid4().hex}"
    if not client.set(key, claim, nx=True, px=CLAIM_MS) and client.get(key) == WAITING:
        return False
    publish()
    try:
        client.eval(CONFIRM, 1, key, claim, WAITING, WAITING_MS)
    except RedisError as error:
        log.debug("no marker for %s: %s", subject, error)
    return True


@contextmanager
def flight(task: SiteTask, subject: str, *, is_poll: bool = False) -> Iterator[Held | None]:
    """The lock of `subject` for the body; None where another task is at work on it, which then does ours as well.

    A poll leaves no note: what is at work does the same.
    """
    is_ours = False
    try:
        with held(broker.locks()) as locks:
            is_ours = locks.take(subject) or (not is_poll and _left_note(task, subject, locks))
            if is_ours:
                _take_up(subject)
            yield locks if is_ours else None
    finally:
        if is_ours:
            _follow_up(subject)


def finish(task: SiteTask, subject: str, report: PassReport) -> object:
    """As the task's own, but of several tasks about one subject that fail only one comes back by itself."""
    if report.retryable_error is not None and not _is_first_to_retry(task, subject):
        log.info("%s: another task about it comes back: %s", subject, report.retryable_error)
        return dict(report.counted())
    return task.finish(report)


def _left_note(task: SiteTask, subject: str, locks: Held) -> bool:
    """Leave a note for the task at work; True when it ended meanwhile, and the lock is ours after all."""
    if not broker.uses_redis():
        task.come_back(ClusterBusy(f"{subject} is being worked on by another task"))
    delivery = task.request.delivery_info or {}
    note = {
        "task": task.name,
        "args": list(task.request.args or ()),
        "queue": delivery.get("routing_key"),
        "priority": delivery.get("priority"),
    }
    key = AGAIN + subject
    try:
        _insisting(lambda client: client.set(key, json.dumps(note), ex=2 * LOCK_TTL_S))
    except RedisError as error:
        task.come_back(QueueUnavailable(f"Redis keeps no note for {subject}: {error}"))
    if not locks.take(subject):
        return False
    _quietly(lambda client: client.delete(key))
    return True


def _take_up(subject: str) -> None:
    """From now on an event about it queues a new task: what it tells may come after our reading."""
    if broker.uses_redis():
        _quietly(lambda client: client.delete(MARKER + subject))


def _follow_up(subject: str) -> None:
    """Start what left a note while we were at work."""
    if not broker.uses_redis():
        return
    note = _quietly(
        lambda client: client.pipeline().get(AGAIN + subject).delete(AGAIN + subject).execute()[0]
    )
    if note:
        found: dict[str, Any] = json.loads(note)
        app.send_task(found["task"], found["args"], queue=found["queue"], priority=found["priority"])


def _is_first_to_retry(task: SiteTask, subject: str) -> bool:
    if not broker.uses_redis():
        return True
    key, own = RETRY + subject, str(task.request.id)

    def ask(client: Any) -> bool:
        lasts_s = COUNTDOWN_MAX_S + LOCK_TTL_S
        if client.set(key, own, nx=True, ex=lasts_s):
            return True
        if client.get(key) != own.encode():
            return False
        client.expire(key, lasts_s)
        return True

    return bool(_quietly(ask, otherwise=True))


def _quietly(ask: Callable[[Any], Any], *, otherwise: Any = None) -> Any:
    try:
        return _insisting(ask)
    except RedisError as error:
        log.debug("no markers: %s", error)
        return otherwise


def _insisting(ask: Callable[[Any], Any]) -> Any:
    """Twice: after Redis was restarted the first use of a connection fails. Raises RedisError."""
    try:
        return ask(broker.client())
    except RedisConnectionError:
        return ask(broker.client())
