# SPDX-License-Identifier: MIT
"""What a month's task tells its loader when an attempt of it ends without a result."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import fakeredis
import pytest

from agent.core.errors import BackendUnavailable, SiteAgentError
from agent.run.backfill.results import Ending, MonthOutcome
from rig.site import settings_of
from tasks import backfill, broker, current
from tasks.backfill import BackfillTask, MonthBusy
from tasks.locks import RedisLocks
from tasks.month_status import MonthState, MonthStatus, RunStatus
from tests.history.operator import Operator, small_waldur

ARGS = ("0" * 32, "2024-01", "run", {})
RUNNING = MonthStatus(MonthState.RUNNING, "worker@one")
AT = datetime(2026, 11, 21, tzinfo=UTC)
DONE = MonthStatus(MonthState.ENDED, outcome=MonthOutcome("2024-01", Ending.DONE, at=AT))


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> RunStatus:
    client = fakeredis.FakeRedis()
    monkeypatch.setattr(broker, "client", lambda: client)
    return RunStatus(client, "run")


def retried(error: SiteAgentError) -> None:
    BackfillTask().on_retry(error, "id", ARGS, {}, None)


def failed(error: SiteAgentError) -> None:
    BackfillTask().on_failure(error, "id", ARGS, {}, None)


@pytest.mark.parametrize("hook", [retried, failed])
@pytest.mark.parametrize("entry", [RUNNING, DONE], ids=["running", "ended"])
def test_a_copy_says_nothing_of_a_month_that_another_has(
    status: RunStatus, hook: object, entry: MonthStatus
) -> None:
    status.write({"2024-01": entry})
    hook(MonthBusy("2024-01 is being loaded by another task"))  # type: ignore[operator]
    assert status.read(["2024-01"]) == {"2024-01": entry}


def test_a_month_that_waits_and_one_that_is_given_up_are_told_of(status: RunStatus) -> None:
    status.write({"2024-01": RUNNING})
    retried(BackendUnavailable("slurmdbd is away"))
    assert status.read(["2024-01"]) == {"2024-01": MonthStatus(MonthState.WAITING, "slurmdbd is away")}
    failed(BackendUnavailable("slurmdbd is away"))
    outcome = status.read(["2024-01"])["2024-01"].outcome
    assert outcome is not None
    assert (outcome.ending, outcome.failures) == (Ending.FAILED, ("slurmdbd is away",))


@pytest.mark.parametrize("hook", [retried, failed])
def test_an_end_is_the_last_word(status: RunStatus, hook: object) -> None:
    status.write({"2024-01": DONE})
    hook(BackendUnavailable("slurmdbd is away"))  # type: ignore[operator]
    assert status.read(["2024-01"]) == {"2024-01": DONE}


class TakenAsTheOtherEnds(RedisLocks):
    """The lock comes free in the moment in which the month is done."""

    def __init__(self, status: RunStatus) -> None:
        super().__init__(fakeredis.FakeRedis(), "worker@two")
        self._status = status

    def take(self, name: str) -> bool:
        self._status.write({"2024-01": DONE})
        return super().take(name)


def test_a_copy_that_waited_for_the_lock_finds_the_month_done(
    status: RunStatus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status.write({"2024-01": RUNNING})
    with small_waldur() as waldur:
        current.use(settings_of(Path(Operator(waldur, tmp_path).configure())))
    monkeypatch.setattr(broker, "locks", lambda: TakenAsTheOtherEnds(status))
    assert backfill.month.run(*ARGS) == "done already"
    assert status.read(["2024-01"]) == {"2024-01": DONE}
