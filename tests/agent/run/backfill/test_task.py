# SPDX-License-Identifier: MIT
"""What a month's task reports to its loader when an attempt of it ends without a result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kombu import Connection

from agent.core.errors import BackendUnavailable, SiteAgentError
from agent.run.backfill.results import Ending, MonthOutcome
from rig.site import settings_of
from tasks import backfill, current
from tasks.backfill import BackfillTask, MonthBusy
from tasks.queue import broker
from tasks.queue.kinds import MemoryBroker
from tasks.queue.month_status import MonthState, MonthStatus, RunStatus
from tasks.queue.stores import Answer, MemoryStore, Record, Step
from tests.agent.run.backfill.operator import Operator, small_waldur

ARGS = ("0" * 32, "2024-01", "run", {})
RUNNING = MonthStatus(MonthState.RUNNING, "worker@one")
AT = datetime(2026, 11, 21, tzinfo=UTC)
DONE = MonthStatus(MonthState.ENDED, outcome=MonthOutcome("2024-01", Ending.DONE, at=AT))


class MonthStore(MemoryStore):
    """Calls `at_work` before it takes a key to work."""

    def at_work(self) -> None: ...

    def update(self, name: str, change: Callable[[Record | None], Step[Answer]]) -> Answer:
        if name.startswith("work:"):
            self.at_work()
        return super().update(name, change)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MonthStore:
    """The records of the queue."""
    store = MonthStore()
    made = MemoryBroker(Connection("memory://"))
    made.store = store
    monkeypatch.setattr(broker, "here", lambda: made)
    return store


@pytest.fixture
def status(store: MonthStore) -> RunStatus:
    return RunStatus(store, "run")


def retried(error: SiteAgentError) -> None:
    BackfillTask().on_retry(error, "id", ARGS, {}, None)


def failed(error: SiteAgentError) -> None:
    BackfillTask().on_failure(error, "id", ARGS, {}, None)


@pytest.mark.parametrize("hook", [retried, failed])
@pytest.mark.parametrize("entry", [RUNNING, DONE], ids=["running", "ended"])
def test_a_copy_says_nothing_of_a_month_that_another_has(
    status: RunStatus, hook: object, entry: MonthStatus
) -> None:
    status.write("2024-01", entry)
    hook(MonthBusy("2024-01 is being loaded by another task"))  # type: ignore[operator]
    assert status.read(["2024-01"]) == {"2024-01": entry}


def test_a_month_that_waits_and_one_that_is_given_up_are_recorded(status: RunStatus) -> None:
    status.write("2024-01", RUNNING)
    retried(BackendUnavailable("slurmdbd is away"))
    assert status.read(["2024-01"]) == {"2024-01": MonthStatus(MonthState.WAITING, "slurmdbd is away")}
    failed(BackendUnavailable("slurmdbd is away"))
    outcome = status.read(["2024-01"])["2024-01"].outcome
    assert outcome is not None
    assert (outcome.ending, outcome.failures) == (Ending.FAILED, ("slurmdbd is away",))


@pytest.mark.parametrize("hook", [retried, failed])
def test_an_end_is_the_last_word(status: RunStatus, hook: object) -> None:
    status.write("2024-01", DONE)
    hook(BackendUnavailable("slurmdbd is away"))  # type: ignore[operator]
    assert status.read(["2024-01"]) == {"2024-01": DONE}


def test_a_copy_that_waited_for_the_lock_finds_the_month_done(
    status: RunStatus, store: MonthStore, tmp_path: Path
) -> None:
    """The month comes free in the moment in which it is done."""
    status.write("2024-01", RUNNING)
    with small_waldur() as waldur:
        current.use(settings_of(Path(Operator(waldur, tmp_path).configure())))
    store.at_work = lambda: status.write("2024-01", DONE)
    assert backfill.month.run(*ARGS) == "done already"
    assert status.read(["2024-01"]) == {"2024-01": DONE}
