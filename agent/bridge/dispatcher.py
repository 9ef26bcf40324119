# SPDX-License-Identifier: MIT
"""From the inbox to the queue of tasks, one message after the other: a message is acknowledged when its jobs are
queued, and not before. While the queue takes nothing, nothing is acknowledged, and the brokers keep what comes.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter

from agent.bridge import dead_letters, decode
from agent.bridge.connection import Backoff
from agent.bridge.dead_letters import DeadLetters
from agent.bridge.decode import Undecodable
from agent.bridge.inbox import Inbox
from agent.bridge.model import Gap, Outbox, Received
from agent.core.errors import ConfigError
from agent.core.events import Job, ObjectType, QueueUnavailable
from agent.state.dead_letters import DeadLetter

log = logging.getLogger(__name__)

RETRY = Backoff(base_s=0.2, cap_s=5.0)


class Dispatcher:
    """`counts`: messages by what became of them, and jobs."""

    def __init__(self, inbox: Inbox, outbox: Outbox, letters: DeadLetters) -> None:
        self.counts: Counter[str] = Counter()
        self._inbox = inbox
        self._outbox = outbox
        self._letters = letters
        self._give_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

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
            try:
                self.handle(item)
            except Exception:  # the message loop: one message must not end the others
                log.exception("a fault of the bridge itself; the message is parked: %.200r", item)
                self.counts["faults"] += 1
                if isinstance(item, Received):
                    self._park(item, "a fault of the bridge itself: see its log")
                    item.acknowledge()
            if self._give_up.is_set():
                return

    def handle(self, item: Received | Gap) -> None:
        """Bring one item to the queue, however long that takes; not at all once we are to give up."""
        if isinstance(item, Gap):
            log.info("offering %s: %s; everything is looked at once", item.offering_uuid, item.reason)
            self.counts["gaps"] += 1
            self._queue(decode.everything({}, item.offering_uuid))
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
            self._park(item, str(error))
            is_queued = True
        else:
            self.counts["settled" if not jobs else "understood"] += is_queued
        if is_queued:
            item.acknowledge()

    def _queue(self, jobs: list[Job]) -> bool:
        """True when all of them are queued. Raises ConfigError for an offering that is not ours."""
        return all(self._queue_one(job) for job in jobs)

    def _queue_one(self, job: Job) -> bool:
        failures = 0
        while not self._give_up.is_set():
            try:
                self.counts["queued" if self._outbox.send(job) else "waiting already"] += 1
            except QueueUnavailable as error:
                if failures == 0:
                    log.warning("%s; nothing is acknowledged until it is back", error)
                self._give_up.wait(RETRY.wait_s(failures, 0.0))
                failures += 1
            else:
                if failures:
                    log.warning("the queue takes tasks again")
                return True
        return False

    def _park(self, item: Received, reason: str) -> None:
        found = dead_letters.letter(item, reason)
        self.counts["parked"] += 1
        if self._letters.park(found):
            log.warning("message %s from %s is parked: %s", found.id, item.source.name, reason)


def replayed(letter: DeadLetter, outbox: Outbox) -> list[Job]:
    """Queue what a dead letter asks for; the jobs. Raises Undecodable where it still cannot be understood,
    ConfigError and QueueUnavailable.
    """
    object_type = ObjectType(letter.object_type) if letter.object_type else None
    _, jobs = decode.jobs(
        letter.content(), letter.size, offering_uuid=letter.offering_uuid, object_type=object_type
    )
    for job in jobs:
        outbox.send(job)
    return jobs
