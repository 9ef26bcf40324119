# SPDX-License-Identifier: MIT
"""The work queue: a key is queued once, is at work once, and is queued again if it was asked for while it ran.

These are the semantics of the work queue in Kubernetes' controllers, across processes that may die at any moment.
Tasks read the truth when they begin, so one that begins after a request covers it. Messages are the broker's; the
records of a key are in a store (`tasks.queue.stores`):

- `asked:KEY` (of beat's polls `polled:...`): a message about it waits. It is set in two steps: a producer that dies
  before it has published leaves `publishing`, which others do not take for a message.
- `work:KEY`: who is at work on it, and the request that came since then (`again`) and is sent at the end; once the work
  has ended the next task may begin. A work may be on a part of what the key is about: messages about
  parts have a mark of their own.
- `retry:KEY`: the one task that comes back after a failure.
- `changed:OFFERING`: projects and resources that events named and no pass has covered yet. Each time they are named
  they get a new mark: a pass removes what has the mark that it saw, and what was named again since then stays.
- `begun:TASK_ID`: how often a task was begun and not ended.

They save work; correctness never rests on them. A broker that knows none of its tasks (`knows_queue`) has no records of
the first and the fourth kind: each message is sent, and carries what it is about.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kombu.exceptions import OperationalError

from agent.core.backoff import Backoff, RetryPolicy
from agent.core.events import QueueUnavailable
from agent.core.retries import COUNTDOWN_MAX_S
from tasks.limits import LOCK_TTL_S
from tasks.queue.stores import NoRoom, Record, Step, Store, as_it_is

log = logging.getLogger(__name__)

# What is asked for is believed for so long: a message that was lost keeps its key out of the queue until then.
WAITING_S = 60.0
# So long may a producer take to publish.
PUBLISHING_S = 15.0
# After that the full pass of a reconciliation period has read everything anyway.
CHANGED_S = BEGUN_S = 86_400.0
# The end of a work, while a broker starts again: for twenty seconds. While there is no room for records: for three.
END = RetryPolicy(8, Backoff(base_s=0.2, cap_s=8, jitter=0))
END_WITHOUT_ROOM = RetryPolicy(5, END.backoff)

# A task to be sent: {"task": name, "args": [...], "queue": name, "priority": number as the broker counts}.
Request = Mapping[str, Any]

# By key the token of a work of this process whose beginning or end could not be recorded, until the next one is.
_unrecorded: dict[str, str] = {}


class WorkQueue:
    """`send` publishes a request. Raises QueueUnavailable where nothing else is said."""

    def __init__(self, store: Store, send: Callable[[Request], None]) -> None:
        self.store = store
        self._send = send

    def ask(self, name: str, publish: Callable[[], object], waits_s: float = WAITING_S) -> bool:
        """Publish a message, unless one of that name waits; False then. Raises what `publish` raises as well."""
        if not self.store.knows_queue:
            publish()
            return True
        mark = {"publishing": uuid.uuid4().hex}

        def marked(record: Record | None) -> Step[bool]:
            is_waiting = record is not None and "since" in record
            return Step(record, False) if is_waiting else Step(mark, True, PUBLISHING_S)

        if not self.store.update(name, marked):
            return False
        publish()
        # A task that has begun since then has taken the mark away.
        waiting = {"since": time.time()}
        self._try(name, lambda found: Step(waiting, None, waits_s) if found == mark else Step(found, None))
        return True

    def forget(self, name: str) -> None:
        """Remove a record: a message of that name waits no more, a task has ended."""
        self._try(name, lambda _: Step(None, None))

    def waits(self, key: str) -> bool:
        """Return whether a message about a key waits; False where that is not known."""
        return "since" in (self.record(f"asked:{key}") or {})

    def is_due(self, key: str, task: str) -> bool:
        """Return whether a key waits, or this task goes once more when the work on it ends; False where that is not
        known.
        """
        again = (self.record(f"work:{key}") or {}).get("again") or {}
        return self.waits(key) or again.get("task") == task

    def record(self, name: str) -> Record | None:
        """Return a record; None as well where the store does not answer."""
        found: Record | None = self._try(name, as_it_is)
        return found

    @contextmanager
    def at_work(
        self, key: str, again: Request | None = None, *, part: str = "", is_poll: bool = False
    ) -> Iterator[bool]:
        """Be at work on a key for the body. Yield False where another task is, which sends `again` at its end. `part`:
        the key by which it was asked for, where it is about a part of it only. `is_poll`: `again` is for a task that is
        at work on a part; others make it unnecessary.
        """
        token = self.take(key, again, part=part, is_poll=is_poll)
        try:
            yield token is not None
        finally:
            if token is not None:
                self.done(key, token)

    def take(
        self, key: str, again: Request | None = None, *, part: str = "", is_poll: bool = False
    ) -> str | None:
        """Begin the work on a key, and return what ends it; None where another task is at work on it. Arguments as of
        `at_work`.
        """
        token = uuid.uuid4().hex

        def taken(record: Record | None) -> Step[bool]:
            ours = {"process": process, "token": token, **({"part": part} if part else {})}
            if record is None:
                return Step(ours, True, LOCK_TTL_S)
            if record.get("token") == token:
                return Step(record, True)
            has_ended = record.get("has_ended") or record.get("token") == _unrecorded.get(key)
            if has_ended or self.store.has_ended(str(record.get("process"))):
                left = {name: record[name] for name in ("again",) if name in record}
                return Step({**left, **ours}, True, LOCK_TTL_S)
            if again is None or (is_poll and "part" not in record):
                return Step(record, False)
            return Step({**record, "again": merged(record.get("again"), again)}, False)

        try:
            process = self.store.process()
            if not self.store.update(f"work:{key}", taken):
                return None
            _unrecorded.pop(key, None)
        except QueueUnavailable as error:
            log.warning("%s: whether another is at work is not known, going on: %s", key, error)
            if isinstance(error, NoRoom):  # else it may be recorded, and is still at work
                _unrecorded.setdefault(key, token)
        # Only now: what is asked for from here on may be about what comes after our reading.
        self.forget(f"asked:{part or key}")
        return token

    def done(self, key: str, token: str) -> None:
        """End the work on a key, and send what was asked for while it ran. Wait where the broker is away briefly, or
        has no room for a moment.

        An end that cannot be recorded counts for this process only: others see a work under way until LOCK_TTL_S is
        over. What was asked for stays in the record: the next work on the key sends it at its end.
        """

        def ended(record: Record | None) -> Step[Request | None]:
            if record is None or record.get("token") != token:
                return Step(record, None)
            if "again" not in record:
                return Step(None, None)
            # It stays until that is sent: a process that dies before has lost nothing.
            return Step({**record, "has_ended": True}, record["again"])

        for attempt in range(END.attempts):
            if attempt:
                time.sleep(END.backoff.wait_s(attempt - 1))
            try:
                again = self.store.update(f"work:{key}", ended)
                if again is not None:
                    self._send(again)
                    self.store.update(f"work:{key}", _without("token", token))
            except (QueueUnavailable, OperationalError, OSError) as error:
                problem = error
                is_tried = key in _unrecorded or attempt + 1 >= END_WITHOUT_ROOM.attempts
                if isinstance(error, NoRoom) and is_tried:
                    break
            else:
                return
        _unrecorded.setdefault(key, token)
        log.warning(
            "the end of %s cannot be recorded: other processes leave it alone for up to %d s, and what was asked for "
            "while it ran is left to the next work on it, or to the next poll (%s)",
            key,
            LOCK_TTL_S,
            problem,
        )

    def recover(self) -> int:
        """End the work of processes that have died, send what was asked for since then, and return how many keys they
        had. Right only when this worker starts.
        """

        def ended(record: Record | None) -> Step[Record | None]:
            is_left = record is not None and self.store.has_ended(str(record.get("process")), at_start=True)
            return Step({**record, "has_ended": True}, record) if record and is_left else Step(record, None)

        left = {
            name: found for name in self.store.names("work:") if (found := self.store.update(name, ended))
        }
        for name, record in left.items():
            if record.get("again"):
                self._send(record["again"])
            # Only now: a process that dies before has lost nothing.
            self.store.update(name, _without("token", record.get("token")))
        return len(left)

    def is_first_to_retry(self, key: str, task_id: str) -> bool:
        """Return whether a task that failed is to come back: of several about one key only the first one is. Where the
        queue is not known each one is, as its message alone says what it is about.
        """
        if not self.store.knows_queue:
            return True

        def noted(record: Record | None) -> Step[bool]:
            if record is not None and record.get("id") != task_id:
                return Step(record, False)
            return Step({"id": task_id}, True, COUNTDOWN_MAX_S + LOCK_TTL_S)

        return self._try(f"retry:{key}", noted) is not False

    def end_retry(self, key: str, task_id: str) -> None:
        """Let another task about the key come back after a failure: this one has ended well."""

        self._try(f"retry:{key}", _without("id", task_id))

    def count_start(self, task_id: str) -> int:
        """Count a start of a task, and return how many there were since it ended last; 0 where that is not known."""

        def counted(record: Record | None) -> Step[int]:
            count = int((record or {}).get("count", 0)) + 1
            return Step({"count": count}, count, BEGUN_S)

        return self._try(f"begun:{task_id}", counted) or 0

    def add_changed(self, offering_uuid: str, entries: Iterable[str]) -> int:
        """Add what events named, and return how much of it waits then."""
        marks = {entry: uuid.uuid4().hex for entry in entries}
        return self.store.add(f"changed:{offering_uuid}", marks, CHANGED_S)

    def changed(self, offering_uuid: str) -> Mapping[str, str]:
        """Return what waits of it, with its marks."""
        return self.store.entries(f"changed:{offering_uuid}")

    def cover(self, offering_uuid: str, seen: Mapping[str, str]) -> None:
        """Remove what a pass has covered, with the marks that it saw. It is covered once more where that fails."""
        if not seen:
            return
        try:
            self.store.remove(f"changed:{offering_uuid}", seen)
        except QueueUnavailable as error:
            log.debug(
                "what is done of the events of offering %s will be done again: %s", offering_uuid, error
            )

    def _try(self, name: str, change: Callable[[Record | None], Step[Any]]) -> Any:
        """Update a record; None where the store is away."""
        try:
            return self.store.update(name, change)
        except QueueUnavailable as error:
            log.debug("the record %s stays as it is: %s", name, error)
            return None


def _without(field: str, value: Any) -> Callable[[Record | None], Step[None]]:
    """Return the change that removes a record whose field still has this value."""
    return lambda found: Step(None if found and found.get(field) == value else found, None)


def merged(earlier: Request | None, later: Request) -> Request:
    """Return one request that asks for what both do: lists among its arguments are put together. Of two tasks the one
    with fewer arguments covers the other.
    """
    if earlier is None:
        return later
    if earlier["task"] != later["task"]:
        return min(earlier, later, key=lambda each: len(each["args"]))
    pairs = zip(earlier["args"], later["args"], strict=True)
    args = [sorted({*one, *two}) if isinstance(two, list) else two for one, two in pairs]
    return {**later, "args": args}
