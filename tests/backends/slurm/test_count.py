# SPDX-License-Identifier: MIT
"""A count that reads only what counts still is the full count, to the second, whatever happened on the cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agent.core.errors import BackendUnavailable
from agent.core.periods import Month
from agent.core.usage import FinalisedUsage, Usage, UsageQuery, UsageSource
from backends.slurm import usage
from backends.slurm.count import JobCount
from backends.slurm.programs import Programs
from backends.slurm.usage import Accounting
from backends.zones import Zones
from tests.backends.slurm.job_table import HOUR, History, JobTable, Row, month_of

ZONE = "Europe/Tallinn"
BEGIN = int(datetime(2026, 3, 27, tzinfo=UTC).timestamp())


class Reports:
    """Reports of a history: what each counted, and how often it did not read the month in full."""

    def __init__(self, table: JobTable) -> None:
        self.table = table
        self.programs = Programs("")
        self.accounting = Accounting(table, self.programs, "", Zones(table))
        self.finalised: FinalisedUsage | None = None
        self.short = 0
        self.full = 0

    def count(self, now: int) -> JobCount:
        moment = datetime.fromtimestamp(now, UTC)
        return JobCount(
            self.accounting, self.table, self.programs, "", self.finalised, moment, may_be_large=True, large=1
        )

    def check(self, now: int) -> None:
        """Count this month and the one before, both ways."""
        count = self.count(now)
        current = month_of(now, ZONE)
        for month in (current, current.previous):
            query = UsageQuery(month, ZONE)
            whole, found = self.accounting.usage(query), count.usage(query)
            assert found.accounts == whole.accounts, f"{month} at {now}"
            assert found.records == whole.records
            assert sorted(j.run for j in found.live) == sorted(j.run for j in whole.live)
        if count.finalised is self.finalised and count.finalised and count.finalised.before:
            self.short += 1
        else:
            self.full += 1
        self.finalised = count.finalised


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer without a job is asked for again, after a while."""
    monkeypatch.setattr(usage, "EMPTY_PAUSE_S", 0.0)


# 22, 36, 88: jobs that are reported to slurmdbd hours late. 46, 91: a clock that is set back.
@pytest.mark.parametrize("seed", [*range(8), 22, 36, 46, 88, 91])
def test_it_is_the_full_count_over_any_history(seed: int) -> None:
    history = History(seed, BEGIN + seed * 7000)
    reports = Reports(history.table)
    for number in range(90):
        history.step()
        if number == 60:
            history.rename()
        reports.check(history.now)
    assert reports.short, "none was shorter"


MAY = UsageQuery(Month(2026, 5))
NOON = int(datetime(2026, 5, 20, 12, tzinfo=UTC).timestamp())


@pytest.fixture
def table() -> JobTable:
    """A job an hour since the first of May: all ended but the last three."""
    table = JobTable(NOON)
    begin = int(datetime(2026, 5, 1, tzinfo=UTC).timestamp())
    for number, start in enumerate(range(begin, NOON, HOUR), 1):
        is_running = start > NOON - 4 * HOUR
        end, state = (0, "RUNNING") if is_running else (start + HOUR, "COMPLETED")
        table.rows.append(Row(number, "a", "ann", 1, start, start, start, end, state))
    return table


@pytest.fixture
def reports(table: JobTable) -> Reports:
    """One report was made."""
    reports = Reports(table)
    count = reports.count(NOON)
    count.usage(MAY)
    reports.finalised = count.finalised
    return reports


def cpu_s(usage: Usage) -> int:
    return usage.accounts["a"].total["cpu"]


def read_again(reports: Reports, now: int = NOON + HOUR, query: UsageQuery = MAY) -> tuple[int, int]:
    """Report an hour later; return the seconds counted and how many lines were read."""
    reports.table.printed = 0
    reports.table.now = now
    found = reports.count(now).usage(query)
    printed = reports.table.printed
    whole = reports.accounting.usage(query)
    assert found.accounts == whole.accounts
    return cpu_s(found), printed


ALL, RECENT = 468, 7


def test_a_second_report_reads_what_counts_still(reports: Reports, table: JobTable) -> None:
    assert len(table.rows) == ALL
    # The jobs of the last six hours before the first report, and those that run.
    seconds, printed = read_again(reports)
    assert printed == RECENT
    table.rows.append(Row(500, "a", "ann", 1, NOON, NOON, NOON, NOON + 60, "COMPLETED"))
    assert read_again(reports) == (seconds + 60, RECENT + 1)


def longer_ago(reports: Reports, _table: JobTable) -> tuple[int, UsageQuery]:
    return NOON + 6 * HOUR, MAY


def clock_set_back(reports: Reports, _table: JobTable) -> tuple[int, UsageQuery]:
    return NOON - 60, MAY


def end_of_the_month(reports: Reports, _table: JobTable) -> tuple[int, UsageQuery]:
    assert reports.finalised
    now = int(datetime(2026, 5, 31, 22, tzinfo=UTC).timestamp())
    reports.finalised = replace(reports.finalised, taken=now - HOUR)
    return now, MAY


def another_zone(_reports: Reports, _table: JobTable) -> tuple[int, UsageQuery]:
    return NOON + HOUR, replace(MAY, zone="Asia/Tokyo")


def another_source(_reports: Reports, table: JobTable) -> tuple[int, UsageQuery]:
    return NOON + HOUR, replace(MAY, source=UsageSource.ALLOCATED)


def another_cluster(reports: Reports, _table: JobTable) -> tuple[int, UsageQuery]:
    reports.programs = Programs("/opt/slurm/bin")
    return NOON + HOUR, MAY


def nothing_kept(reports: Reports, _table: JobTable) -> tuple[int, UsageQuery]:
    reports.finalised = None
    return NOON + HOUR, MAY


def user_renamed(_reports: Reports, table: JobTable) -> tuple[int, UsageQuery]:
    table.names["ann"] = "anna"
    table.renamed.append(NOON + 60)
    return NOON + HOUR, MAY


def renaming_unknown(_reports: Reports, table: JobTable) -> tuple[int, UsageQuery]:
    table.failing = "sacctmgr"
    return NOON + HOUR, MAY


def running_job_deleted(_reports: Reports, table: JobTable) -> tuple[int, UsageQuery]:
    del table.rows[-3]
    return NOON + HOUR, MAY


def job_that_ended_long_ago(_reports: Reports, table: JobTable) -> tuple[int, UsageQuery]:
    table.rows[-3].end = NOON - 20 * HOUR
    return NOON + HOUR, MAY


def finalised_job_runs_again(_reports: Reports, table: JobTable) -> tuple[int, UsageQuery]:
    table.rows[3].end = 0
    return NOON + HOUR, MAY


def late_report_of_a_job_that_runs(_reports: Reports, table: JobTable) -> tuple[int, UsageQuery]:
    start = NOON - 3 * HOUR
    table.rows.append(Row(600, "a", "ann", 1, start, start, start, 0, "RUNNING"))
    return NOON + HOUR, MAY


IN_FULL = (
    longer_ago,
    clock_set_back,
    end_of_the_month,
    another_zone,
    another_source,
    another_cluster,
    nothing_kept,
    user_renamed,
    renaming_unknown,
    running_job_deleted,
    job_that_ended_long_ago,
    finalised_job_runs_again,
    late_report_of_a_job_that_runs,
)


@pytest.mark.parametrize("why", IN_FULL, ids=lambda why: why.__name__)
def test_a_month_is_read_in_full_where_it_is_not_certain(
    reports: Reports, table: JobTable, why: Callable[[Reports, JobTable], tuple[int, UsageQuery]]
) -> None:
    now, query = why(reports, table)
    _, printed = read_again(reports, now, query)
    assert printed >= len(table.rows)


@pytest.mark.parametrize("trouble", ["queue", "sdiag"])
def test_nothing_is_finalised_while_slurmctld_may_have_more_to_report(table: JobTable, trouble: str) -> None:
    if trouble == "queue":
        table.queue = 3
    else:
        table.failing = "sdiag"
    reports = Reports(table)
    for _ in range(2):
        table.printed = 0
        count = reports.count(NOON)
        count.usage(MAY)
        reports.finalised = count.finalised
        assert reports.finalised
        assert (reports.finalised.before, table.printed) == (0, ALL)


def test_a_row_that_was_changed_by_hand_long_after_its_end_is_seen_by_the_next_full_count(
    reports: Reports, table: JobTable
) -> None:
    table.rows[5].end += 600
    short = reports.count(NOON + 5 * HOUR).usage(MAY)
    full = reports.count(NOON + 6 * HOUR).usage(MAY)
    assert cpu_s(full) - cpu_s(short) == 600


@pytest.mark.parametrize("lines", [0, 1, 5])
def test_an_answer_that_ends_early_is_not_added_to_what_is_finalised(
    reports: Reports, table: JobTable, lines: int
) -> None:
    table.cut = [lines]
    read_again(reports)
    assert not table.cut


def test_slurmdbd_lost_in_the_middle_is_an_error(reports: Reports, table: JobTable) -> None:
    table.failing = "sacct"
    with pytest.raises(BackendUnavailable, match="the accounting database does not answer"):
        reports.count(NOON + HOUR).usage(MAY)


def test_a_small_month_is_read_in_full_with_no_other_command(table: JobTable) -> None:
    reports = Reports(table)
    moment = datetime.fromtimestamp(NOON, UTC)
    count = JobCount(
        reports.accounting, table, reports.programs, "", None, moment, may_be_large=False, large=ALL + 1
    )
    count.usage(MAY)
    assert (count.finalised, table.executed) == (None, {"read": 1})


def test_a_large_month_that_was_not_expected_is_remembered(table: JobTable) -> None:
    reports = Reports(table)
    moment = datetime.fromtimestamp(NOON, UTC)
    for expected in ((ALL, 0), (ALL, NOON - 6 * HOUR)):
        count = JobCount(
            *(reports.accounting, table, reports.programs, "", reports.finalised, moment),
            may_be_large=False,
            large=ALL,
        )
        count.usage(MAY)
        reports.finalised = count.finalised
        assert reports.finalised
        assert (reports.finalised.size, reports.finalised.before) == expected
