# SPDX-License-Identifier: MIT
"""A history on the real slurmdbd: its short counts, its full counts, and those of the table in memory are the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.core.usage import FinalisedUsage, UsageQuery
from backends.process import Runner
from backends.slurm.count import JobCount
from backends.slurm.programs import Programs
from backends.slurm.usage import Accounting
from backends.zones import Zones
from rig import job_rows
from rig.job_rows import JobRow
from rig.slurm_cluster import SlurmCluster
from tests.backends.slurm.job_table import ACCOUNTS, USERS, History, JobTable, Row, month_of

pytestmark = pytest.mark.every_slurm(one_of=10)

ZONE = "Europe/Tallinn"
BEGIN = int(datetime(2026, 3, 31, tzinfo=UTC).timestamp())
SDIAG = '#!/bin/sh\necho "sdiag output at some day ({time})"\necho "DBD Agent queue size: {queue}"\n'


def moment(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def stored(row: Row) -> JobRow:
    paused = tuple(filter(None, map(moment, row.paused)))
    return JobRow(
        row.account,
        row.user,
        moment(row.start),
        moment(row.end),
        {"cpu": row.cpus, "mem": row.cpus * 1024, "node": 1},
        state=row.state,
        submit=moment(row.submit),
        suspended=((paused[0], paused[1]),) if paused else (),
        id=row.id,
    )


@pytest.fixture
def slurmdbd(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """Jobs that run for ever would keep their users from being removed."""
    yield slurm
    clear(slurm)


def clear(slurm: SlurmCluster) -> None:
    slurm.sql(f"DELETE FROM {slurm.cluster}_job_table", f"DELETE FROM {slurm.cluster}_suspend_table")


def put(slurm: SlurmCluster, table: JobTable, sdiag: Path) -> None:
    """Make slurmdbd's table the same. A job without an eligible time is listed by neither."""
    clear(slurm)
    job_rows.add(slurm, [stored(row) for row in table.rows if row.eligible])
    for row in table.rows:
        if row.eligible not in (0, row.submit):
            slurm.sql(
                f"UPDATE {slurm.cluster}_job_table SET time_eligible = {row.eligible}"
                f" WHERE id_job = {row.id} AND time_submit = {row.submit}"
            )
    sdiag.write_text(SDIAG.format(time=table.now, queue=table.queue))
    sdiag.chmod(0o755)


def test_short_and_full_counts_of_the_real_sacct_are_the_same(slurmdbd: SlurmCluster, tmp_path: Path) -> None:
    slurm = slurmdbd
    for name in ("sacct", "sacctmgr"):
        (tmp_path / name).symlink_to(slurm.bin_path / name)
    job_rows.add_accounts(slurm, {account: list(USERS) for account in ACCOUNTS})
    programs, runner = Programs(str(tmp_path)), Runner(passed_on=("SLURM_CONF",))
    accounting = Accounting(runner, programs, slurm.cluster, Zones(runner))
    history = History(8, BEGIN)
    in_memory = Accounting(history.table, programs, "", Zones(history.table))
    finalised: FinalisedUsage | None = None
    short = 0
    for _ in range(40):
        history.step()
    for _ in range(12):
        history.step()
        put(slurm, history.table, tmp_path / "sdiag")
        now = datetime.fromtimestamp(history.now, UTC)
        count = JobCount(
            accounting, runner, programs, slurm.cluster, finalised, now, may_be_large=True, large=1
        )
        # sacct lets jobs run to the present time.
        history.table.now = int(time.time())
        current = month_of(history.now, ZONE)
        for month in (current, current.previous):
            query = UsageQuery(month, ZONE)
            whole, found = accounting.usage(query), count.usage(query)
            expected = in_memory.usage(query)
            assert found.accounts == whole.accounts == expected.accounts
            assert found.records == whole.records == expected.records
        short += count.finalised is finalised
        finalised = count.finalised
    assert short
