# SPDX-License-Identifier: MIT
"""The loader's side of the queue: sends months to the workers of an offering and follows what becomes of them.

A month is sent again when nobody can have it any more: Redis may lose a message on its way to a worker that is
killed, and a node may never come back. That does no harm, a month that is done is not loaded twice.
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
from agent.run.backfill.runs import Audience, Record, Run
from tasks import backfill, broker, current
from tasks.app import app
from tasks.limits import TASK_TIME_LIMIT_S
from tasks.month_status import Board, Entry, State

CONNECT_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: between two looks; of silence before it is said that no worker comes, and how often; before a month
    that is in no queue any more is sent again, and one that some worker seemed to have. `resends`: after so many a
    month has failed.
    """

    look_s: float = 0.25
    lonely_s: float = 15.0
    repeat_s: float = 120.0
    lost_s: float = 30.0
    gone_s: float = 2.0 * TASK_TIME_LIMIT_S
    resends: int = 3


def why_not(settings: Settings) -> str:
    """Why months cannot go through the queue; empty where they can."""
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


def queued(run: Run, queue: str, record: Record, audience: Audience, delay_s: float) -> Queued:
    """With the broker of this process."""
    return Queued(
        run,
        queue,
        record,
        audience,
        Board(broker.client(), run.id),
        lambda month: backfill.send(run.offering_uuid, month, run.id, run.wish),
        lambda: not broker.urgent_waits(queue, table.HISTORY_PRIORITY + 1),
        delay_s,
    )


@dataclass
class Queued:
    """Months in the hands of workers. With `delay_s` one at a time goes out, that long after the one before ended.

    `pending` have not ended; of these `unsent` are in nobody's hands yet. `send` puts a month into the queue, of
    which `is_empty` tells whether nothing waits in it.
    """

    run: Run
    queue: str
    record: Record
    audience: Audience
    board: Board
    send: Callable[[Month], None]
    is_empty: Callable[[], bool]
    delay_s: float = 0.0
    patience: Patience = Patience()
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    pending: list[Month] = field(default_factory=list)
    unsent: list[Month] = field(default_factory=list)
    _seen: dict[str, Entry] = field(default_factory=dict)
    _resent: Counter[Month] = field(default_factory=Counter)
    _news_s: float = 0.0
    _said_s: float = 0.0
    _next_s: float = 0.0
    _is_away: bool = False

    def known(self) -> Mapping[str, MonthOutcome]:
        """Months that ended in an earlier run of the same parameters. Raises SiteAgentError."""
        entries = self._read(self.run.months)
        return {name: e.outcome for name, e in entries.items() if e.state is State.ENDED and e.outcome}

    def load(self, months: Iterable[Month], *, resumed: bool = False) -> None:
        """Send the months and stay until all have ended; a broker that goes away meanwhile is waited for. `resumed`:
        what an earlier loader has sent is not sent twice.

        Raises SiteAgentError where the broker is away from the start.
        """
        self.pending = list(months)
        adopted = self._read(self.pending) if resumed else {}
        self.unsent = [m for m in self.pending if not _is_under_way(adopted.get(str(m)))]
        try:
            self.board.write({str(m): Entry(State.QUEUED) for m in self.unsent})
        except RedisError as error:
            raise _silent(error) from error
        self._news_s = self._said_s = self.clock()
        while self.pending:
            try:
                self._send_due()
                self._look()
                self._is_away = False
            except (OperationalError, RedisError) as error:
                self._note_away(error)
            if self.pending:
                self.sleep(self.patience.look_s)

    def _send_due(self) -> None:
        under_way = len(self.pending) - len(self.unsent)
        while self.unsent and not (self.delay_s and (under_way or self.clock() < self._next_s)):
            self._send(self.unsent[0])
            del self.unsent[0]
            under_way += 1

    def _send(self, month: Month) -> None:
        self.send(month)
        self._news_s = self.clock()

    def _note_away(self, error: Exception) -> None:
        """Said once. Workers are not silent as long as nobody can hear them."""
        if not self._is_away:
            self.audience.remark(Mark.WARNING, f"the broker does not answer ({error}): waiting for it")
        self._is_away = True
        self._news_s = self.clock()

    def _look(self) -> None:
        entries = self.board.read([str(month) for month in self.pending])
        for month in list(self.pending):
            entry = entries.get(str(month))
            if entry is not None and entry != self._seen.get(str(month)):
                self._seen[str(month)] = entry
                self._tell(month, entry)
        silent_s = self.clock() - self._news_s
        if self.pending and silent_s > self.patience.lonely_s:
            self._lonely(silent_s)

    def _tell(self, month: Month, entry: Entry) -> None:
        if entry.state is not State.QUEUED:
            self._news_s = self.clock()
        if entry.state is State.RUNNING:
            self.audience.begun(month, entry.words)
        elif entry.state is State.WAITING:
            self.audience.waiting(month, entry.words)
        elif entry.state is State.ENDED and entry.outcome is not None:
            self._end(month, entry.outcome)

    def _end(self, month: Month, outcome: MonthOutcome) -> None:
        self.pending.remove(month)
        self._next_s = self.clock() + self.delay_s
        self.record.add(outcome)
        self.audience.ended(outcome)

    def _lonely(self, silent_s: float) -> None:
        """Nothing has been heard for a while: say so, and send what nobody can have any more."""
        sent = [month for month in self.pending if month not in self.unsent]
        taken = [m for m in sent if _state(self._seen.get(str(m))) in (State.RUNNING, State.WAITING)]
        waiting = [m for m in sent if m not in taken]
        if waiting and not taken and self.clock() - self._said_s > self._pause_s():
            self._said_s = self.clock()
            self.audience.remark(
                Mark.WARNING,
                f"no worker has taken a month from the queue {self.queue} for {silent_s:.0f} s: does one run there? "
                f"Start it (`celery -A tasks worker -Q {self.queue}`), or stop this and load with --local",
            )
        is_lost = silent_s > self.patience.lost_s and self.is_empty()
        again = [*(waiting if is_lost else ()), *(taken if silent_s > self.patience.gone_s else ())]
        for month in again:
            if self._resent[month] >= self.patience.resends:
                words = f"nothing was heard of it, though it was sent {self.patience.resends + 1} times"
                self._end(month, MonthOutcome(str(month), Ending.AGAIN).failed(words))
                continue
            self._send(month)
            self._resent[month] += 1
            self.audience.remark(Mark.WARNING, f"nothing is heard of {month}: it is sent once more")

    def _pause_s(self) -> float:
        """Before the first word of loneliness, and between the others."""
        is_first = self._said_s <= self._news_s
        return self.patience.lonely_s if is_first else self.patience.repeat_s

    def _read(self, months: Iterable[Month]) -> dict[str, Entry]:
        try:
            return self.board.read([str(month) for month in months])
        except RedisError as error:
            raise _silent(error) from error


def _is_under_way(entry: Entry | None) -> bool:
    return entry is not None and entry.state is not State.ENDED


def _state(entry: Entry | None) -> State | None:
    return entry.state if entry else None


def _silent(error: Exception) -> SiteAgentError:
    return SiteAgentError(f"the broker does not answer ({error}): try again, or load here with --local")
