# SPDX-License-Identifier: MIT
"""From the inbox to the queue of tasks, one message after the other: a message is acknowledged when its jobs are
queued, and not before. While the queue takes nothing, nothing is acknowledged, and the brokers keep what comes.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter

from agent.bridge import dead_letters, decode
from agent.bridge.dead_letters import DeadLetters
from agent.bridge.decode import Undecodable
from agent.bridge.inbox import Inbox
from agent.bridge.model import Gap, Outbox, Received
from agent.core.backoff import Backoff
from agent.core.errors import ConfigError
from agent.core.events import Job, ObjectType, QueueUnavailable
from agent.observability import logs
from agent.state.dead_letters import DeadLetter

log = logging.getLogger(__name__)

RETRY = Backoff(base_s=0.2, cap_s=5.0, jitter=0)


class Dispatcher:
    """Hands what is in the inbox to the outbox, in a thread of its own."""

    def __init__(self, inbox: Inbox, outbox: Outbox, letters: DeadLetters) -> None:
        # Messages by result, and jobs.
        self.counts: Counter[str] = Counter()
        self._inbox = inbox
        self._outbox = outbox
        self._dead_letters = letters
        self._give_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def drain(self, timeout_s: float) -> bool:
        """Queue what is in the inbox and end; False when time is over, and the rest left to the brokers."""
        self._inbox.end()
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            return True
        self._give_up.set()
        self._thread.join(timeout_s)
        return False

    def _run(self) -> None:
        while (item := self._inbox.get()) is not None:
            offering = item.offering_uuid if isinstance(item, Gap) else item.source.offering_uuid
            try:
                with logs.about(offering=offering):
                    self.handle(item)
            except Exception:  # the message loop: one message must not end the others
                log.exception("internal error; the message becomes a dead letter: %.200r", item)
                self.counts["faults"] += 1
                if isinstance(item, Received):
                    self._set_aside(item, "internal error of the bridge: see its log")
                    item.acknowledge()
            if self._give_up.is_set():
                return

    def handle(self, item: Received | Gap) -> None:
        """Bring one item to the queue, however long that takes; not at all once we are to give up."""
        if isinstance(item, Gap):
            log.info("offering %s: %s; a full pass is queued", item.offering_uuid, item.reason)
            self.counts["gaps"] += 1
            self._queue(decode.full_pass(item.offering_uuid))
            return
        self.counts["received"] += 1
        source = item.source
        try:
            object_type, jobs = decode.jobs(
                item.body, item.size, offering_uuid=source.offering_uuid, object_type=source.object_type
            )
            if object_type not in source.types:
                raise Undecodable(f"messages of type {object_type} were not asked for")
            is_queued = self._queue(jobs)
        except (Undecodable, ConfigError) as error:
            self._set_aside(item, str(error))
            is_queued = True
        else:
            self.counts["nothing due" if not jobs else "understood"] += is_queued
        if is_queued:
            item.acknowledge()

    def _queue(self, jobs: list[Job]) -> bool:
        """Queue the jobs, however long that takes; False once we are to give up. Raises ConfigError for an
        offering that is not ours.
        """
        for job in jobs:
            failures = 0
            while True:
                if self._give_up.is_set():
                    return False
                try:
                    self.counts["queued" if self._outbox.send(job) else "waiting already"] += 1
                    break
                except QueueUnavailable as error:
                    if failures == 0:
                        log.warning("%s; nothing is acknowledged until it is back", error)
                    self._give_up.wait(RETRY.wait_s(failures))
                    failures += 1
            if failures:
                log.warning("the queue takes tasks again")
        return True

    def _set_aside(self, item: Received, reason: str) -> None:
        found = dead_letters.letter(item, reason)
        self.counts["dead letters"] += 1
        if self._dead_letters.add(found):
            log.warning("message %s from %s is a dead letter: %s", found.id, item.source.name, reason)


def replay(letter: DeadLetter, outbox: Outbox) -> list[Job]:
    """Queue the jobs that a dead letter asks for, and return them. Raises Undecodable where it still cannot be
    understood, ConfigError and QueueUnavailable.
    """
    if letter.object_type and letter.object_type not in list(ObjectType):
        raise Undecodable(f"its type {letter.object_type!r:.80} is none that this agent knows")
    object_type = ObjectType(letter.object_type) if letter.object_type else None
    _, jobs = decode.jobs(
        letter.content(), letter.size, offering_uuid=letter.offering_uuid, object_type=object_type
    )
    for job in jobs:
        outbox.send(job)
    return jobs
