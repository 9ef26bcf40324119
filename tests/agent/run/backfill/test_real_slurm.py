# SPDX-License-Identifier: MIT
"""Months of history from the real slurmdbd."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.history import YEAR, HistoryOnSlurm, in_units
from rig.reports import scenario
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur

pytestmark = pytest.mark.every_slurm(one_of=10)

# benchmarks/history.py has the whole year, with 200 accounts.
ACCOUNTS, USERS, JOBS = 10, 2, 50
MONTHS = YEAR[1:4]


@pytest.fixture
def years(slurm: SlurmCluster, tmp_path: Path) -> HistoryOnSlurm:
    with SimulatedWaldur(scenario=scenario(ACCOUNTS)) as waldur:
        yield HistoryOnSlurm(slurm, waldur, tmp_path)


@pytest.mark.by_commands
def test_months_of_many_accounts_are_one_sacct_call_each(years: HistoryOnSlurm, slurm: SlurmCluster) -> None:
    """Jobs go over the borders of months; what was reported adds up to what the rows say, to the last cent."""
    counted = years.fill(MONTHS, USERS, JOBS)
    years.load(MONTHS)
    assert years.progress.lines == [word for m in MONTHS for word in (f"{m} begun", f"{m} done")]
    assert years.started() == {"sacct": len(MONTHS), "sacctmgr": 1 + slurm.refused_reads}
    assert years.reported() == in_units(counted)
    years.waldur.requests.reset()
    years.load(MONTHS[:1])
    assert years.waldur.requests.count("POST *") == 0
