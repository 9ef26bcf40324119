# SPDX-License-Identifier: MIT
"""Jobs that are suspended now, in the months of their lives, as the real SLURM reports them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.core.periods import Month
from agent.core.usage import UsageQuery, UsageSource
from backends.slurm.backend import SlurmBackend
from rig import job_rows
from rig.host_zone import set_host_zone
from rig.job_rows import JobRow
from rig.slurm_cluster import SlurmCluster
from tests.backends.conftest import Connect

pytestmark = pytest.mark.every_slurm(one_of=10)

ASKED = {"cpu": 2, "mem": 500, "node": 1, "billing": 2}
MAY = Month(2025, 5).start(UTC)
MONTHS = (Month(2025, 4), Month(2025, 5), Month(2025, 6))
H = timedelta(hours=1)
DAY = 24 * H


def rows() -> list[JobRow]:
    """`often` has been suspended before the month, over its beginning and in it, `early` is since before the month,
    `inside` began in it.
    """
    often = (
        (MAY - 2 * DAY, MAY - 2 * DAY + 12 * H),
        (MAY - 2 * H, MAY + 2 * H),
        (MAY + 2 * DAY, MAY + 2 * DAY + 6 * H),
        (MAY + 9 * DAY, None),
    )
    return [
        JobRow("often", "ann", MAY - 3 * DAY, None, ASKED, suspended=often, state="SUSPENDED"),
        JobRow("early", "ann", MAY - 3 * DAY, None, ASKED, suspended=((MAY - DAY, None),), state="SUSPENDED"),
        JobRow(
            "inside", "ann", MAY + DAY, None, ASKED, suspended=((MAY + 2 * DAY, None),), state="SUSPENDED"
        ),
    ]


# Hours that each job ran, and hours that it was there, in April, May and June.
RAN = {"often": (58, 208, 0), "early": (48, 0, 0), "inside": (0, 24, 0)}
THERE = {"often": (72, 744, 720), "early": (72, 744, 720), "inside": (0, 720, 720)}


@pytest.fixture(scope="module")
def suspended(emptied_slurm: SlurmCluster) -> SlurmCluster:
    job_rows.add_accounts(emptied_slurm, {name: ["ann"] for name in RAN})
    job_rows.add(emptied_slurm, rows())
    return emptied_slurm


def hours(
    backend: SlurmBackend, month: Month, tres: str, source: UsageSource = UsageSource.REQUESTED
) -> dict[str, float]:
    found = backend.usage(UsageQuery(month, "UTC", source)).accounts
    counts = {name: Counter(account.total)[tres] / ASKED[tres] / 3600 for name, account in found.items()}
    return {name: count for name, count in counts.items() if count}


def of_month(table: dict[str, tuple[int, int, int]], month: Month) -> dict[str, float]:
    number = MONTHS.index(month)
    return {name: each[number] for name, each in table.items() if each[number]}


@pytest.mark.parametrize("month", MONTHS, ids=str)
def test_a_job_that_is_suspended_now_counts_no_more_than_it_ran(
    suspended: SlurmCluster, on_slurm: Connect, month: Month
) -> None:
    backend = on_slurm()
    assert hours(backend, month, "mem") == of_month(RAN, month)
    assert hours(backend, month, "cpu", UsageSource.ALLOCATED) == of_month(RAN, month)
    assert hours(backend, month, "node", UsageSource.ALLOCATED) == of_month(THERE, month)


def test_the_rollup_counts_it_alike(suspended: SlurmCluster, on_slurm: Connect, tmp_path: Path) -> None:
    backend, may = on_slurm(), UsageQuery(MONTHS[1], "UTC", UsageSource.ALLOCATED)
    with pytest.MonkeyPatch.context() as environment:
        set_host_zone("UTC", tmp_path, environment)
        job_rows.roll_up(suspended, may.month)
        theirs = backend.rolled_up(may)
    ours = backend.usage(may)
    assert {name: +Counter(account.total) for name, account in ours.accounts.items()} == {
        name: Counter(account.total) for name, account in theirs.accounts.items()
    }


def test_in_the_present_month_it_counts_nothing_and_takes_three_commands(
    suspended: SlurmCluster, on_slurm: Connect
) -> None:
    backend = on_slurm()
    present = Month.of(datetime.now(UTC))
    assert hours(backend, present, "cpu") == {}
    assert backend.executed.total() == 3


def test_figures_stay_when_it_is_resumed_and_when_it_has_ended(
    suspended: SlurmCluster, on_slurm: Connect
) -> None:
    """The last test here: it changes the rows. Resumed on the first of July, ended on the second."""
    backend, table = on_slurm(), f"{suspended.cluster}_job_table"
    resumed = int(Month(2025, 7).start(UTC).timestamp())
    steps = (
        (
            f"UPDATE {table} SET state = 1, time_suspended = {resumed} - time_suspended",
            f"UPDATE {suspended.cluster}_suspend_table SET time_end = {resumed} WHERE time_end = 0",
        ),
        (f"UPDATE {table} SET state = 3, time_end = {resumed + 86_400}",),
    )
    for step in steps:
        suspended.sql(*step)
        for month in MONTHS:
            assert hours(backend, month, "cpu") == of_month(RAN, month)
    assert hours(backend, Month(2025, 7), "cpu") == dict.fromkeys(RAN, 24)
