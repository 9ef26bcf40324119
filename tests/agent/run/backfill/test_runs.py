# SPDX-License-Identifier: MIT
"""Months one after the other in one process: failures, outages, what is written down, and going on from there."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from agent.core.errors import AnswerTooSlow, BackendUnavailable
from agent.core.periods import Month, months_between
from agent.core.usage import Usage, UsageQuery
from agent.run.backfill import runs as history_runs
from agent.run.backfill.month import LoadOptions
from agent.run.backfill.results import (
    LINES_AT_MOST,
    TEXT_AT_MOST,
    Ending,
    Line,
    Mark,
    MonthOutcome,
)
from agent.run.backfill.runs import InProcess, Loader, Run, RunRecord
from agent.state.hints import HISTORY_MONTHS
from agent.state.store import Store
from rig.recorded_progress import RecordedProgress
from simulator.server.faults import Fault
from tests.agent.run.backfill.world import FEB, JAN, MAR, History
from tests.agent.state.obstacles import block

UTC_ZONE = ZoneInfo("UTC")
MONTHS = (JAN, FEB, MAR)


def run_of(history: History, months: tuple[Month, ...] = MONTHS, **options: object) -> Run:
    return Run(history.site.offering.uuid, months, LoadOptions(**options))  # type: ignore[arg-type]


def here(history: History, progress: RecordedProgress, *, delay_s: float = 0, **options: object) -> Loader:
    run = run_of(history, **options)
    record = RunRecord(run, history.state_dir)
    return Loader(record, progress, InProcess(history.site, run.options, progress, delay_s, progress.sleep))


@pytest.fixture
def busy(history: History) -> History:
    for month in MONTHS:
        history.busy(month)
    return history


def test_twelve_months_are_twelve_readings(history: History) -> None:
    year = months_between(Month(2024, 1).first_day, Month(2024, 12).first_day)
    for month in year:
        history.busy(month)
    progress = RecordedProgress()
    here(history, progress).load(year)
    assert [query.month for query in history.backend.queries] == list(year)
    assert all(len(history.in_waldur(month)) == 4 for month in year)
    assert progress.slept == []


def test_a_failed_month_stops_no_other(busy: History) -> None:
    progress = RecordedProgress()
    loader = here(busy, progress)
    busy.waldur.inject(Fault(path="set_usage", method="POST", status=400, body="no", skip=4))
    loader.load(MONTHS)
    assert progress.lines == [
        *("2024-01 begun", "2024-01 done"),
        *("2024-02 begun", "2024-02 failed"),
        *("2024-03 begun", "2024-03 done"),
    ]
    assert loader.record.months["2024-02"].failures


def test_an_outage_is_waited_out(busy: History) -> None:
    outages = iter([True, True, True])
    busy.backend.outage = lambda call: call == "usage" and next(outages, False)
    progress = RecordedProgress()
    here(busy, progress).load(MONTHS)
    assert progress.lines[:5] == [
        "2024-01 begun", "2024-01 waits", "2024-01 waits", "2024-01 waits", "2024-01 done",
    ]  # fmt: skip
    assert progress.slept == [5, 10, 20]


def test_an_outage_that_does_not_end_fails_each_month_and_is_waited_for_once(busy: History) -> None:
    busy.backend.outage = lambda call: call == "usage"
    progress = RecordedProgress()
    here(busy, progress).load(MONTHS)
    assert [word for word in progress.lines if "waits" not in word] == [
        *("2024-01 begun", "2024-01 failed"),
        *("2024-02 begun", "2024-02 failed"),
        *("2024-03 begun", "2024-03 failed"),
    ]
    assert progress.slept == [5, 10, 20, 40, 80, 120, 120, 120, 120]


def test_an_answer_that_was_too_slow_is_asked_for_minutes_later_and_seldom(
    busy: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database goes on with each question that was given up, also when the next month is asked for."""
    asked: list[Month] = []

    def slow(query: UsageQuery) -> Usage:
        asked.append(query.month)
        if query.month == JAN:
            raise AnswerTooSlow("`sacct` gave no answer within 600 s")
        return answer(query)

    answer = busy.backend.usage
    monkeypatch.setattr(busy.backend, "usage", slow)
    progress = RecordedProgress()
    here(busy, progress).load(MONTHS)
    assert asked == [JAN, JAN, JAN, FEB, MAR]
    assert progress.slept == [300, 300, 300]
    assert progress.lines[3:] == [
        *("2024-01 failed", "2024-02 begun"),
        "the database may be busy still: it is asked for 2024-02 in 300 s",
        *("2024-02 done", "2024-03 begun", "2024-03 done"),
    ]


def test_a_slow_answer_among_outages_has_waits_of_its_own(busy: History) -> None:
    kinds = iter([BackendUnavailable("away"), AnswerTooSlow("slow"), BackendUnavailable("away")])

    def fail(call: str) -> bool:
        error = next(kinds, None) if call == "usage" else None
        if error:
            raise error
        return False

    busy.backend.outage = fail
    progress = RecordedProgress()
    here(busy, progress).load((JAN,))
    assert progress.slept == [5, 300, 10]
    assert progress.lines[-1] == "2024-01 done"


def test_what_an_earlier_attempt_reported_is_counted_once(busy: History) -> None:
    """The connection breaks in the middle of a month: the next attempt reports the rest."""
    progress = RecordedProgress()
    busy.site = busy.connected(attempts=1)
    busy.waldur.inject(Fault(path="set_usage", status=503, skip=2, times=1))
    loader = here(busy, progress)
    loader.load((JAN,))
    assert loader.record.months["2024-01"].submitted == 4
    assert len(busy.in_waldur(JAN)) == 4


def test_between_months_is_a_pause(busy: History) -> None:
    progress = RecordedProgress()
    here(busy, progress, delay_s=7).load(MONTHS)
    assert progress.slept == [7, 7]


def test_what_was_done_is_written_down_at_once(busy: History) -> None:
    """A loader that dies in its second month leaves the first one to be found."""
    loader = here(busy, RecordedProgress())
    loader.load((JAN,))
    found = RunRecord.read(loader.record.run, busy.state_dir)
    assert list(history_runs.finished(loader.record.run, found.months, UTC_ZONE)) == [JAN]
    assert busy.waldur.token("staff").encode() not in Store(busy.state_dir).path.read_bytes()


@pytest.mark.parametrize(
    "other",
    [{"accounts": ("a_1",)}, {"with_users": False}, {"reconcile_stale": True}, {"dry_run": True}],
    ids=lambda options: next(iter(options)),
)
def test_other_parameters_are_another_run(busy: History, other: dict[str, object]) -> None:
    loader = here(busy, RecordedProgress())
    loader.load(MONTHS)
    assert RunRecord.read(run_of(busy, **other), busy.state_dir).months == {}
    assert RunRecord.read(run_of(busy, (JAN, FEB)), busy.state_dir).months == {}


def test_a_failed_month_is_loaded_again(busy: History) -> None:
    busy.waldur.inject(Fault(path="set_usage", method="POST", status=400, body="no", skip=4))
    loader = here(busy, RecordedProgress())
    loader.load(MONTHS)
    found = RunRecord.read(loader.record.run, busy.state_dir)
    assert list(history_runs.finished(loader.record.run, found.months, UTC_ZONE)) == [JAN, MAR]


def test_a_month_of_which_the_cluster_reported_nothing_is_asked_for_again(history: History) -> None:
    """Its database may have been away, or was another one."""
    history.busy(JAN)
    loader = here(history, RecordedProgress())
    loader.load((JAN, FEB))
    found = RunRecord.read(loader.record.run, history.state_dir)
    assert found.months["2024-02"].ending is Ending.UNKNOWN
    assert list(history_runs.finished(loader.record.run, found.months, UTC_ZONE)) == [JAN]


def test_a_month_with_held_decreases_is_asked_for_again_when_they_are_allowed(busy: History) -> None:
    loader = here(busy, RecordedProgress())
    loader.load(MONTHS)
    job = next(job for job in busy.backend.jobs if job.month == FEB)
    busy.alter(job.id, counts={"cpu": 900})
    loader.load(MONTHS)
    allowing = run_of(busy, allow_decreases=True)
    found = RunRecord.read(allowing, busy.state_dir)
    assert list(history_runs.finished(allowing, found.months, UTC_ZONE)) == [JAN, MAR]


def test_what_was_held_before_an_outage_is_not_forgotten() -> None:
    earlier = MonthOutcome("2024-01", Ending.AGAIN, held=("less",))
    away = MonthOutcome("2024-01", Ending.AGAIN, error=BackendUnavailable("away"))
    assert away.after(earlier).held == ("less",)
    assert MonthOutcome("2024-01", Ending.DONE).after(earlier).held == ()


@pytest.mark.parametrize(
    ("at", "is_done"),
    [
        (datetime(2024, 1, 31, 23, tzinfo=UTC), False),
        (datetime(2024, 2, 1, 0, tzinfo=UTC), True),
    ],
)
def test_a_month_that_was_loaded_before_its_end_is_loaded_again(
    history: History, at: datetime, is_done: bool
) -> None:
    outcome = replace(MonthOutcome("2024-01", Ending.DONE, resources=1), at=at)
    assert (JAN in history_runs.finished(run_of(history), {"2024-01": outcome}, UTC_ZONE)) is is_done


@pytest.mark.parametrize("outcome", [{}, {"month": "2024-01"}, {"month": 3}])
def test_a_month_that_cannot_be_understood_is_loaded_again(
    history: History, outcome: dict[str, object]
) -> None:
    run = run_of(history)
    HISTORY_MONTHS.put(history.state_dir, run.id, {"2024-01": outcome})
    assert RunRecord.read(run, history.state_dir).months == {}


def test_a_record_that_cannot_be_written_stops_nothing(busy: History) -> None:
    block(busy.state_dir)
    loader = here(busy, RecordedProgress())
    loader.load(MONTHS)
    assert len(loader.record.months) == 3


def test_a_dry_run_leaves_nothing_behind(busy: History) -> None:
    loader = here(busy, RecordedProgress(), dry_run=True)
    loader.load(MONTHS)
    assert HISTORY_MONTHS.all(busy.state_dir, loader.record.run.id) == {}


def test_an_outcome_travels_as_json() -> None:
    outcome = MonthOutcome(
        "2024-01", Ending.FAILED, 5, 4, 1, 2, ("less",), ("why",),
        (Line(Mark.SENT, "\u00fc"), Line(Mark.ERROR, "why")), 2, 9, 0.5,
        datetime(2026, 11, 21, tzinfo=UTC),
    )  # fmt: skip
    assert MonthOutcome.from_json(json.loads(json.dumps(outcome.as_json()))) == outcome
    options = LoadOptions(
        ("a", "b"),
        with_users=False,
        reconcile_stale=True,
        dry_run=True,
        staff_check=False,
        allow_decreases=True,
    )
    assert LoadOptions.from_json(json.loads(json.dumps(options.as_json()))) == options


def test_of_too_many_lines_the_warnings_travel() -> None:
    lines = (*(Line(Mark.SENT, str(n)) for n in range(3 * LINES_AT_MOST)), Line(Mark.WARNING, "lowered"))
    outcome = MonthOutcome("2024-01", Ending.DONE, lines=lines)
    kept = MonthOutcome.from_json(outcome.as_json()).lines
    assert len(kept) == LINES_AT_MOST + 1
    assert Line(Mark.WARNING, "lowered") in kept
    assert kept[-1].text.startswith(f"{2 * LINES_AT_MOST + 1} more lines are in the log")


def test_a_line_that_names_everybody_is_cut() -> None:
    users = ", ".join(f"'user{n}': 1.00" for n in range(10_000))
    sentence = f"a_1: cpu of {users}"
    outcome = MonthOutcome(
        "2024-01", Ending.FAILED, held=(sentence,), failures=(sentence,), lines=(Line(Mark.SENT, users),)
    )
    assert len(json.dumps(outcome.as_json())) < 4 * TEXT_AT_MOST
    kept = MonthOutcome.from_json(outcome.as_json())
    assert kept.failures[0].startswith("a_1: cpu of 'user0': 1.00, 'user1'")
    assert kept.failures[0].endswith("\u2026") and len(kept.failures[0]) == TEXT_AT_MOST
    assert len(kept.lines[0].text) == TEXT_AT_MOST


@pytest.mark.parametrize(
    ("outcome", "is_finished"),
    [
        (MonthOutcome("2024-01", Ending.DONE, 4, 4), True),
        (MonthOutcome("2024-01", Ending.DONE, 4, 0), True),
        (MonthOutcome("2024-01", Ending.DONE, 4, 3, skipped=1), False),
        (MonthOutcome("2024-01", Ending.DONE, 0, 0), False),
        (MonthOutcome("2024-01", Ending.UNKNOWN, 4, 0), False),
        (MonthOutcome("2024-01", Ending.HELD, 4, 3, held=("less",)), False),
        (MonthOutcome("2024-01", Ending.FAILED, 4, 3, failures=("why",)), False),
    ],
)
def test_what_is_not_whole_is_loaded_again(
    history: History, outcome: MonthOutcome, is_finished: bool
) -> None:
    known = {"2024-01": MonthOutcome.from_json(json.loads(json.dumps(outcome.as_json())))}
    found = history_runs.finished(run_of(history), known, UTC_ZONE)
    assert (JAN in found) is is_finished
