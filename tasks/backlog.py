# SPDX-License-Identifier: MIT
"""What events told of members and no pass has covered yet, by offering: projects and resources, each once.

An entry stays until a pass has covered it that began after its last event came, so that a worker which dies in between
loses nothing. Each telling has a number above all before it: a pass covers entries up to a number, and what is told of
again meanwhile has a higher one. It is kept in the broker's Redis, or in the memory of a process that has its queue
there; with another broker there is none, and each event is a task of its own.
"""

from __future__ import annotations

import itertools
import logging
import threading
from dataclasses import dataclass

from redis import RedisError

from agent.core.account_names import uuid_hex
from agent.run.scope import PassScope
from tasks import broker

log = logging.getLogger(__name__)

# Below the markers of events: the users of Redis need no more rights.
KEY, COUNTER = "site-event:backlog:", "site-event:backlog-number"
# After that the full pass of a reconciliation period has read everything anyway.
KEPT_S = 86_400
PROJECT, RESOURCE = "project", "resource"
ADD = """
local number = redis.call('incrby', KEYS[2], 1)
for entry = 2, #ARGV do redis.call('zadd', KEYS[1], number, ARGV[entry]) end
redis.call('expire', KEYS[1], ARGV[1])
return #redis.call('zrangebyscore', KEYS[1], '-inf', '+inf')
"""
REMOVE = """
local covered = redis.call('zrangebyscore', KEYS[1], '-inf', ARGV[1])
for _, entry in ipairs(covered) do redis.call('zrem', KEYS[1], entry) end
return #covered
"""

# Of an embedded queue: entries with their numbers, by offering.
_here: dict[str, dict[str, int]] = {}
_numbers = itertools.count(1)
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Told:
    """What waits now. `number`: that of the last telling."""

    scope: PassScope
    number: int


def is_kept() -> bool:
    """Return whether bridge and workers share a backlog."""
    return broker.uses_redis() or broker.is_embedded()


def add(offering_uuid: str, scope: PassScope) -> int:
    """Add the projects and resources of a scope. Return how many wait then. Raises RedisError."""
    entries = [f"{PROJECT}:{uuid}" for uuid in scope.projects]
    entries += [f"{RESOURCE}:{uuid}" for uuid in scope.resources]
    if broker.uses_redis():
        return int(broker.client().eval(ADD, 2, KEY + offering_uuid, COUNTER, KEPT_S, *entries))
    with _lock:
        here = _here.setdefault(offering_uuid, {})
        here.update(dict.fromkeys(entries, next(_numbers)))
        return len(here)


def waiting(offering_uuid: str) -> Told | None:
    """Return what waits; None where nothing does. Raises RedisError."""
    if broker.uses_redis():
        rows = broker.client().zrange(KEY + offering_uuid, 0, -1, withscores=True)
        numbers = {entry.decode(): int(score) for entry, score in rows}
    else:
        with _lock:
            numbers = dict(_here.get(offering_uuid, {}))
    found: dict[str, set[str]] = {PROJECT: set(), RESOURCE: set()}
    for entry in numbers:
        kind, _, uuid = entry.partition(":")
        try:
            found[kind].add(uuid_hex(uuid))
        except (KeyError, ValueError):
            log.warning("the backlog of offering %s has an entry of nobody's: %.80r", offering_uuid, entry)
    if not numbers:
        return None
    scope = PassScope(resources=frozenset(found[RESOURCE]), projects=frozenset(found[PROJECT]))
    return Told(scope, max(numbers.values()))


def last_number(offering_uuid: str) -> int:
    """Return the number up to which a pass over everything that begins now covers the backlog; 0 where nothing waits,
    or nobody can tell.
    """
    try:
        told = waiting(offering_uuid)
    except RedisError as error:
        log.debug("what events told of offering %s is not known: %s", offering_uuid, error)
        return 0
    return told.number if told else 0


def remove(offering_uuid: str, number: int) -> None:
    """Remove what a pass has covered. Where Redis is away it is covered once more."""
    if not number:
        return
    if not broker.uses_redis():
        with _lock:
            here = _here.get(offering_uuid, {})
            _here[offering_uuid] = {entry: last for entry, last in here.items() if last > number}
        return
    try:
        broker.client().eval(REMOVE, 1, KEY + offering_uuid, number)
    except RedisError as error:
        log.debug("what is done of the events of offering %s will be done again: %s", offering_uuid, error)
