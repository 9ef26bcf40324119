# SPDX-License-Identifier: MIT
"""Load months through the queue: send them to the workers of an offering and follow their status.

A month is sent again when no worker can have it any more: Redis may lose a message on its way to a worker that is
killed, and a node may never come back. That is harmless: a month that is done is not loaded twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import beat_schedule as table
from agent.config.model import Settings
from agent.core.errors import SiteAgentError
from agent.core.events import QueueUnavailable
from agent.core.periods import Month
from agent.core.said import Said
from agent.run.backfill.results import Ending, Mark, MonthOutcome
from agent.run.backfill.runs import ProgressListener, Run
from tasks import backfill, current
from tasks.limits import TASK_TIME_LIMIT_S
from tasks.queue import broker, kinds
from tasks.queue.inspection import AWAY, BrokerAway, connected
from tasks.queue.month_status import MonthState, MonthStatus, RunStatus


@dataclass(frozen=True, slots=True)
class Timing:
    """When months on workers are looked at, warned of and sent again, in seconds."""

    # Between two reads of the status.
    poll_s: float = 0.25
    # Without news until a warning that no worker comes.
    silence_s: float = 15.0
    # Until the next such warning.
    repeat_s: float = 120.0
    # Without news until a month that is in no queue is sent again.
    lost_s: float = 30.0
    # The same of a month that a worker had.
    taken_s: float = 2.0 * TASK_TIME_LIMIT_S
    # After so many a month has failed.
    resends: int = 3


def unavailable_reason(settings: Settings) -> str:
    """Return why months cannot go through the queue; empty where they can."""
    settings = current.reached(settings)
    current.use(settings)
    if lacks := kinds.kind_of(settings.broker_url.reveal()).lacks:
        return lacks
    try:
        connected(settings).release()
    except BrokerAway as error:
        return str(error)
    return ""


def on_workers(run: Run, queue: str, listener: ProgressListener, delay_s: float) -> OnWorkers:
    """Return the workers that the broker of this process reaches."""
    return OnWorkers(
        run.months,
        queue,
        listener,
        RunStatus(broker.here().store, run.id),
        lambda month: backfill.enqueue_month(run.offering_uuid, month, run.id, run.options),
        lambda: not broker.here().urgent_waits(queue, table.BACKFILL_PRIORITY + 1),
        delay_s,
    )


@dataclass
class OnWorkers:
    """Loads months of a run through workers."""

    months: tuple[Month, ...]
    queue: str
    listener: ProgressListener
    status: RunStatus
    # Queues a month.
    send: Callable[[Month], None]
    # Says whether nothing waits in the queue.
    is_empty: Callable[[], bool]
    # With it one month at a time is sent, that long after the last one ended.
    delay_s: float = 0.0
    timing: Timing = Timing()
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    # Months that have not ended.
    pending: list[Month] = field(default_factory=list)
    # Pending months that are not in the queue yet.
    unsent: list[Month] = field(default_factory=list)
    _seen: dict[str, MonthStatus] = field(default_factory=dict)
    _resent: Counter[Month] = field(default_factory=Counter)
    _news_s: float = 0.0
    _warned_s: float = 0.0
    _next_s: float = 0.0
    _said: Said = field(default_factory=Said)

    def ended_before(self) -> Mapping[str, MonthOutcome]:
        try:
            statuses = self.status.read(map(str, self.months))
        except QueueUnavailable as error:
            raise _unanswered(error) from error
        return {name: s.outcome for name, s in statuses.items() if s.has_ended and s.outcome}

    def under_way(self) -> str:
        sent = len(self.pending) - len(self.unsent)
        unsent = f"; {len(self.unsent)} were not sent yet" if self.unsent else ""
        return f"; {sent} stay in the queue, and the workers go on with them{unsent}"

    def load(self, months: Iterable[Month], *, resumed: bool) -> Iterator[MonthOutcome]:
        """Send the months and yield each as it ends; wait for a broker that goes away while they run. `resumed`: do not
        send again what an earlier loader has sent.

        Raises SiteAgentError where the broker is away from the start.
        """
        self.pending = list(months)
        try:
            adopted = self.status.read(map(str, self.pending)) if resumed else {}
            under_way = {name for name, status in adopted.items() if not status.has_ended}
            self.unsent = [month for month in self.pending if str(month) not in under_way]
            for month in self.unsent:
                self.status.write(str(month), MonthStatus(MonthState.QUEUED))
        except QueueUnavailable as error:
            raise _unanswered(error) from error
        self._news_s = self._warned_s = self.clock()
        while self.pending:
            try:
                self._send_due()
                yield from self._follow()
                self._said.news("broker")
            except AWAY as error:
                if self._said.news("broker", "away"):
                    self.listener.remark(
                        Mark.WARNING, f"the broker does not answer ({error}): waiting for it"
                    )
                # Workers are not silent as long as the broker is away.
                self._news_s = self.clock()
            if self.pending:
                self.sleep(self.timing.poll_s)

    def _send_due(self) -> None:
        under_way = len(self.pending) - len(self.unsent)
        while self.unsent and not (self.delay_s and (under_way or self.clock() < self._next_s)):
            self._send(self.unsent[0])
            del self.unsent[0]
            under_way += 1

    def _send(self, month: Month) -> None:
        self.send(month)
        self._news_s = self.clock()

    def _follow(self) -> Iterator[MonthOutcome]:
        """Pass on what has changed since the last read, and yield what has ended."""
        statuses = self.status.read(map(str, self.pending))
        for month in list(self.pending):
            status = statuses.get(str(month))
            if status is None or status == self._seen.get(str(month)):
                continue
            self._seen[str(month)] = status
            if status.state is not MonthState.QUEUED:
                self._news_s = self.clock()
            if status.state is MonthState.RUNNING:
                self.listener.begun(month, status.detail)
            elif status.state is MonthState.WAITING:
                self.listener.waiting(month, status.detail)
            elif status.state is MonthState.ENDED and status.outcome is not None:
                yield self._ended(month, status.outcome)
        silent_s = self.clock() - self._news_s
        if self.pending and silent_s > self.timing.silence_s:
            yield from self._handle_silence(silent_s)

    def _ended(self, month: Month, outcome: MonthOutcome) -> MonthOutcome:
        self.pending.remove(month)
        self._next_s = self.clock() + self.delay_s
        return outcome

    def _handle_silence(self, silent_s: float) -> Iterator[MonthOutcome]:
        """Warn that no worker comes, and send again what no worker can have any more; yield what has failed by that."""
        sent = [month for month in self.pending if month not in self.unsent]
        seen = {month: self._seen[str(month)].state for month in sent if str(month) in self._seen}
        taken = [m for m in sent if seen.get(m) in (MonthState.RUNNING, MonthState.WAITING)]
        waiting = [m for m in sent if m not in taken]
        is_first = self._warned_s <= self._news_s
        pause_s = self.timing.silence_s if is_first else self.timing.repeat_s
        if waiting and not taken and self.clock() - self._warned_s > pause_s:
            self._warned_s = self.clock()
            self.listener.remark(
                Mark.WARNING,
                f"no worker has taken a month from the queue {self.queue} for {silent_s:.0f} s: does one run there? "
                f"Start it (`celery -A tasks worker -Q {self.queue}`), or stop this and load with --local",
            )
        is_lost = silent_s > self.timing.lost_s and self.is_empty()
        again = [*(waiting if is_lost else ()), *(taken if silent_s > self.timing.taken_s else ())]
        for month in again:
            if self._resent[month] >= self.timing.resends:
                reason = f"nothing was heard of it, though it was sent {self.timing.resends + 1} times"
                yield self._ended(month, MonthOutcome(str(month), Ending.AGAIN).failed(reason))
                continue
            self._send(month)
            self._resent[month] += 1
            self.listener.remark(Mark.WARNING, f"nothing is heard of {month}: it is sent once more")


def _unanswered(error: Exception) -> SiteAgentError:
    return SiteAgentError(f"the broker does not answer ({error}): try again, or load here with --local")
