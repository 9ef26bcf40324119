# SPDX-License-Identifier: MIT
"""Load months through the queue: send them to the workers of an offering and follow their status.

A month is sent again when no worker can have it any more: Redis may lose a message on its way to a worker that is
killed, and a node may never come back. That is harmless: a month that is done is not loaded twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kombu.exceptions import OperationalError
from redis import RedisError

import beat_schedule as table
from agent.config.model import Settings
from agent.core.errors import SiteAgentError
from agent.core.periods import Month
from agent.run.backfill.results import Ending, Mark, MonthOutcome
from agent.run.backfill.runs import ProgressListener, Run, RunRecord
from tasks import backfill, broker, current
from tasks.app import app
from tasks.limits import TASK_TIME_LIMIT_S
from tasks.month_status import MonthState, MonthStatus, RunStatus

CONNECT_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: `poll_s` between two reads of the status; `silence_s` without news until a warning that no worker comes,
    `repeat_s` until the next one; `lost_s` without news until a month that is in no queue is sent again, `taken_s`
    until one that a worker had is. `resends`: after so many a month has failed.
    """

    poll_s: float = 0.25
    silence_s: float = 15.0
    repeat_s: float = 120.0
    lost_s: float = 30.0
    taken_s: float = 2.0 * TASK_TIME_LIMIT_S
    resends: int = 3


def unavailable_reason(settings: Settings) -> str:
    """Return why months cannot go through the queue; empty where they can."""
    settings = current.reached(settings)
    current.use(settings)
    if not broker.uses_redis():
        return "the broker is no Redis, through which the outcomes would come back"
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, timeout=CONNECT_TIMEOUT_S)
            connection.default_channel.client.ping()
    except (OperationalError, RedisError, OSError) as error:
        return f"the broker {settings.broker_url} does not answer ({error})"
    return ""


def queue_loader(
    run: Run, queue: str, record: RunRecord, listener: ProgressListener, delay_s: float
) -> QueueLoader:
    """Return a loader that uses the broker of this process."""
    return QueueLoader(
        run,
        queue,
        record,
        listener,
        RunStatus(broker.client(), run.id),
        lambda month: backfill.enqueue_month(run.offering_uuid, month, run.id, run.options),
        lambda: not broker.urgent_waits(queue, table.BACKFILL_PRIORITY + 1),
        delay_s,
    )


@dataclass
class QueueLoader:
    """Loads months through workers. With `delay_s` one at a time is sent, that long after the one before ended.

    `pending` have not ended; of these `unsent` are not in the queue yet. `send` queues a month; `is_empty` tells
    whether nothing waits in the queue.
    """

    run: Run
    queue: str
    record: RunRecord
    listener: ProgressListener
    status: RunStatus
    send: Callable[[Month], None]
    is_empty: Callable[[], bool]
    delay_s: float = 0.0
    timing: Timing = Timing()
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    pending: list[Month] = field(default_factory=list)
    unsent: list[Month] = field(default_factory=list)
    _seen: dict[str, MonthStatus] = field(default_factory=dict)
    _resent: Counter[Month] = field(default_factory=Counter)
    _news_s: float = 0.0
    _warned_s: float = 0.0
    _next_s: float = 0.0
    _is_away: bool = False

    def ended_before(self) -> Mapping[str, MonthOutcome]:
        """Return the months that ended in an earlier run of the same parameters. Raises SiteAgentError."""
        statuses = self._read(self.run.months)
        return {name: s.outcome for name, s in statuses.items() if s.has_ended and s.outcome}

    def load(self, months: Iterable[Month], *, resumed: bool = False) -> None:
        """Send the months and return when all have ended; wait for a broker that goes away meanwhile. `resumed`: do not
        send again what an earlier loader has sent.

        Raises SiteAgentError where the broker is away from the start.
        """
        self.pending = list(months)
        adopted = self._read(self.pending) if resumed else {}
        under_way = {name for name, status in adopted.items() if not status.has_ended}
        self.unsent = [month for month in self.pending if str(month) not in under_way]
        try:
            self.status.write({str(m): MonthStatus(MonthState.QUEUED) for m in self.unsent})
        except RedisError as error:
            raise _unanswered(error) from error
        self._news_s = self._warned_s = self.clock()
        while self.pending:
            try:
                self._send_due()
                self._follow()
                self._is_away = False
            except (OperationalError, RedisError) as error:
                if not self._is_away:
                    self.listener.remark(
                        Mark.WARNING, f"the broker does not answer ({error}): waiting for it"
                    )
                self._is_away = True
                # Workers are not silent as long as nobody can hear them.
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

    def _follow(self) -> None:
        """Pass on what has changed since the last read."""
        statuses = self.status.read([str(month) for month in self.pending])
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
                self._end(month, status.outcome)
        silent_s = self.clock() - self._news_s
        if self.pending and silent_s > self.timing.silence_s:
            self._handle_silence(silent_s)

    def _end(self, month: Month, outcome: MonthOutcome) -> None:
        self.pending.remove(month)
        self._next_s = self.clock() + self.delay_s
        self.record.add(outcome)
        self.listener.ended(outcome)

    def _handle_silence(self, silent_s: float) -> None:
        """Warn that no worker comes, and send again what no worker can have any more."""
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
                self._end(month, MonthOutcome(str(month), Ending.AGAIN).failed(reason))
                continue
            self._send(month)
            self._resent[month] += 1
            self.listener.remark(Mark.WARNING, f"nothing is heard of {month}: it is sent once more")

    def _read(self, months: Iterable[Month]) -> dict[str, MonthStatus]:
        try:
            return self.status.read([str(month) for month in months])
        except RedisError as error:
            raise _unanswered(error) from error


def _unanswered(error: Exception) -> SiteAgentError:
    return SiteAgentError(f"the broker does not answer ({error}): try again, or load here with --local")
