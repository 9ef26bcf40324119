# SPDX-License-Identifier: MIT
"""The loader follows its months: silence, lost messages, nodes that never come back, a broker that is away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import fakeredis
import pytest
from kombu.exceptions import OperationalError
from redis import RedisError

from agent.core.errors import SiteAgentError
from agent.core.events import QueueUnavailable
from agent.core.periods import Month
from agent.run.backfill.month import LoadOptions
from agent.run.backfill.results import Ending, MonthOutcome
from agent.run.backfill.runs import Loader, Run, RunRecord
from rig.recorded_progress import RecordedProgress
from tasks.queue.month_queue import OnWorkers, Timing
from tasks.queue.month_status import MonthState, MonthStatus, RunStatus
from tasks.queue.stores import MemoryStore, RedisStore, Store
from tests.agent.run.backfill.world import FEB, JAN, MAR

MONTHS = (JAN, FEB, MAR)
RUN = Run("0" * 32, MONTHS, LoadOptions())


def ended(month: Month, ending: Ending = Ending.DONE) -> MonthStatus:
    return MonthStatus(MonthState.ENDED, outcome=MonthOutcome(str(month), ending))


@dataclass
class Farm:
    """A queue, a status and workers that a test plays. `script` runs at each look of the loader, with its number."""

    folder: Path
    script: Callable[[Farm, int], None]
    store: Store = field(default_factory=MemoryStore)
    progress: RecordedProgress = field(default_factory=RecordedProgress)
    sent: list[Month] = field(default_factory=list)
    waiting: list[Month] = field(default_factory=list)
    now_s: float = 1000.0
    looks: int = 0
    pace_s: float = 1.0

    def __post_init__(self) -> None:
        self.status = RunStatus(self.store, RUN.id)

    def send(self, month: Month) -> None:
        self.sent.append(month)
        self.waiting.append(month)

    def sleep(self, _seconds: float) -> None:
        self.now_s += self.pace_s
        self.looks += 1
        assert self.looks < 2000, self.progress.lines
        self.script(self, self.looks)

    def loader(self, delay_s: float = 0.0) -> Loader:
        self.workers = OnWorkers(
            RUN.months,
            "site.c1",
            self.progress,
            self.status,
            self.send,
            lambda: not self.waiting,
            delay_s,
            Timing(),
            self.sleep,
            lambda: self.now_s,
        )
        return Loader(RunRecord(RUN, self.folder), self.progress, self.workers)

    def take(self) -> Month:
        month = self.waiting.pop(0)
        self.status.write(str(month), MonthStatus(MonthState.RUNNING, "worker@one"))
        return month

    def end(self, month: Month, ending: Ending = Ending.DONE) -> None:
        self.status.write(str(month), ended(month, ending))


def work(farm: Farm, look: int) -> None:
    """A worker that ends a month at each look."""
    if farm.waiting:
        farm.end(farm.take())


def test_months_are_sent_at_once_and_followed_to_their_end(tmp_path: Path) -> None:
    farm = Farm(tmp_path, work)
    loader = farm.loader()
    loader.load(MONTHS)
    assert farm.sent == list(MONTHS)
    assert farm.progress.lines == ["2024-01 done", "2024-02 done", "2024-03 done"]
    assert sorted(loader.record.months) == ["2024-01", "2024-02", "2024-03"]
    assert farm.workers.pending == []


def test_with_a_delay_one_month_goes_out_after_the_other(tmp_path: Path) -> None:
    at: list[tuple[float, Month]] = []

    def note(farm: Farm, look: int) -> None:
        at.extend((farm.now_s, month) for month in farm.waiting)
        work(farm, look)

    farm = Farm(tmp_path, note)
    farm.loader(delay_s=10).load(MONTHS)
    times = [seconds for seconds, _ in at]
    assert [month for _, month in at] == list(MONTHS)
    assert all(later - earlier >= 10 for earlier, later in pairwise(times))


def test_a_worker_that_does_not_come_is_said_now_and_then(tmp_path: Path) -> None:
    def late(farm: Farm, look: int) -> None:
        if look > 300:
            work(farm, look)

    farm = Farm(tmp_path, late)
    farm.loader().load(MONTHS)
    complaints = [words for words in farm.progress.lines if words.startswith("no worker has taken a month")]
    assert len(complaints) == 3
    assert "from the queue site.c1 for 16 s" in complaints[0]
    assert farm.sent == list(MONTHS), "they wait in the queue"


def test_a_month_that_is_in_no_queue_any_more_is_sent_again(tmp_path: Path) -> None:
    """A worker was killed between taking a message and noting that it has it."""

    def lose(farm: Farm, look: int) -> None:
        if look == 1:
            farm.waiting.remove(FEB)
        work(farm, look)

    farm = Farm(tmp_path, lose)
    farm.loader().load(MONTHS)
    assert farm.sent == [*MONTHS, FEB]
    assert "nothing is heard of 2024-02: it is sent once more" in farm.progress.lines


def test_a_month_of_a_node_that_never_comes_back_is_sent_again_later(tmp_path: Path) -> None:
    begun_s = 0.0

    def vanish(farm: Farm, look: int) -> None:
        nonlocal begun_s
        if look == 1:
            farm.take()
            begun_s = farm.now_s
            return
        work(farm, look)

    farm = Farm(tmp_path, vanish)
    farm.loader().load(MONTHS)
    assert farm.sent == [*MONTHS, JAN]
    assert farm.now_s - begun_s > 600


def test_a_month_that_is_lost_again_and_again_has_failed(tmp_path: Path) -> None:
    """A worker that ends over it, each time (too little memory, a time limit that is not caught)."""

    def die(farm: Farm, look: int) -> None:
        if farm.waiting and farm.waiting[0] == JAN:
            farm.waiting.pop(0)
        work(farm, look)

    farm = Farm(tmp_path, die)
    loader = farm.loader()
    loader.load(MONTHS)
    assert farm.sent.count(JAN) == 4
    assert farm.progress.lines[-1] == "2024-01 failed"
    assert loader.record.months["2024-01"].failures == (
        "nothing was heard of it, though it was sent 4 times",
    )


def test_a_month_that_a_worker_has_is_left_to_it(tmp_path: Path) -> None:
    def slow(farm: Farm, look: int) -> None:
        if look == 1:
            farm.take()
        elif look == 280:
            farm.end(JAN)
        elif look > 280:
            work(farm, look)

    farm = Farm(tmp_path, slow)
    farm.loader().load(MONTHS)
    assert farm.sent == list(MONTHS)


def test_a_month_that_waits_is_shown_with_its_reason(tmp_path: Path) -> None:
    def retry(farm: Farm, look: int) -> None:
        if look == 1:
            month = farm.take()
            farm.status.write(str(month), MonthStatus(MonthState.WAITING, "slurmdbd does not answer"))
        elif look == 2:
            farm.end(JAN, Ending.FAILED)
        else:
            work(farm, look)

    farm = Farm(tmp_path, retry)
    farm.loader().load(MONTHS)
    assert farm.progress.lines[:2] == ["2024-01 waits", "2024-01 failed"]


def test_what_an_earlier_loader_has_sent_is_not_sent_twice(tmp_path: Path) -> None:
    farm = Farm(tmp_path, work)
    farm.status.write("2024-01", MonthStatus(MonthState.QUEUED))
    farm.status.write("2024-02", ended(FEB, Ending.FAILED))
    farm.waiting = [JAN]
    loader = farm.loader()
    assert loader.destination.ended_before()["2024-02"].ending is Ending.FAILED
    loader.load(MONTHS, resumed=True)
    assert farm.sent == [FEB, MAR]


def test_a_new_run_does_not_take_an_old_end_for_its_own(tmp_path: Path) -> None:
    farm = Farm(tmp_path, work)
    for month in MONTHS:
        farm.end(month)
    farm.loader().load(MONTHS)
    assert farm.sent == list(MONTHS)


def test_a_broker_that_goes_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(farm: Farm, look: int) -> None:
        if look == 1:
            farm.status.read = _fail  # type: ignore[method-assign]
        elif look == 5:
            del farm.status.read
        work(farm, look)

    def _fail(_months: object) -> dict[str, MonthStatus]:
        raise QueueUnavailable("gone")

    farm = Farm(tmp_path, away)
    farm.loader().load(MONTHS)
    assert farm.progress.lines[0] == "the broker does not answer (gone): waiting for it"
    assert farm.progress.lines[1:] == ["2024-01 done", "2024-02 done", "2024-03 done"]


@pytest.mark.parametrize("delay_s", [0.0, 10.0])
def test_a_broker_that_goes_away_while_months_are_sent_is_waited_for(tmp_path: Path, delay_s: float) -> None:
    """The second month cannot be sent for a while; the others are under way, or done."""

    class Blinking(Farm):
        refused = 0

        def send(self, month: Month) -> None:
            if month == FEB and self.refused < 3:
                self.refused += 1
                raise OperationalError("gone")
            super().send(month)

    farm = Blinking(tmp_path, work)
    loader = farm.loader(delay_s)
    loader.load(MONTHS)
    assert (farm.refused, farm.sent, farm.workers.pending, farm.workers.unsent) == (3, list(MONTHS), [], [])
    assert farm.progress.lines.count("the broker does not answer (gone): waiting for it") == 1
    assert sorted(farm.progress.lines[-2:]) == ["2024-02 done", "2024-03 done"]


def test_a_lost_month_is_sent_again_when_the_broker_is_back(tmp_path: Path) -> None:
    class Blinking(Farm):
        def send(self, month: Month) -> None:
            if self.sent[3:] == [] and len(self.sent) == 3 and self.looks < 40:
                raise RedisError("gone")
            super().send(month)

    def lose(farm: Farm, look: int) -> None:
        if look == 1:
            farm.waiting.remove(FEB)
        work(farm, look)

    farm = Blinking(tmp_path, lose)
    loader = farm.loader()
    loader.load(MONTHS)
    assert farm.sent == [*MONTHS, FEB]
    assert loader.record.months["2024-02"].ending is Ending.DONE
    news = [words for words in farm.progress.lines if "2024-02" in words]
    assert news == ["nothing is heard of 2024-02: it is sent once more", "2024-02 done"]


def test_an_outage_of_the_broker_is_not_a_silence_of_workers(tmp_path: Path) -> None:
    def away(farm: Farm, look: int) -> None:
        if look == 1:
            farm.take()
        elif look == 2:
            farm.status.read = _fail  # type: ignore[method-assign]
        elif look == 1000:
            del farm.status.read
        elif look == 1005:
            farm.end(JAN)
        elif look > 1005:
            work(farm, look)

    def _fail(_months: object) -> dict[str, MonthStatus]:
        raise QueueUnavailable("gone")

    farm = Farm(tmp_path, away)
    farm.loader().load(MONTHS)
    assert farm.sent == list(MONTHS)


def test_a_broker_that_is_away_from_the_start(tmp_path: Path) -> None:
    server = fakeredis.FakeServer()
    server.connected = False
    farm = Farm(tmp_path, work, store=RedisStore(fakeredis.FakeRedis(server=server), ""))
    with pytest.raises(SiteAgentError, match="load here with --local"):
        farm.loader().load(MONTHS)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "asleep"}', '{"state": "ended", "outcome": {}}'])
def test_a_damaged_entry_counts_as_none(text: str) -> None:
    client = fakeredis.FakeRedis()
    client.set("site-backfill:run:2024-01", text)
    found = RunStatus(RedisStore(client, ""), "run").read(["2024-01", "2024-02"])
    assert found.get("2024-01") in (None, MonthStatus(MonthState.ENDED))
    assert not any(entry.is_done for entry in found.values())


def test_the_board_ends_by_itself() -> None:
    client = fakeredis.FakeRedis()
    RunStatus(RedisStore(client, ""), "run").write("2024-01", MonthStatus(MonthState.QUEUED))
    assert client.ttl("site-backfill:run:2024-01") == 7 * 24 * 3600
