# SPDX-License-Identifier: MIT
"""A year of history from the real slurmdbd."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.sim.server import SimulatedWaldur
from tests.history.on_slurm import HistoryOnSlurm, in_units
from tests.history.operator import YEAR
from tests.real.slurm_cluster import SlurmCluster
from tests.report.on_slurm import scenario

# A hundredth of the figures in benchmarks/history.py.
ACCOUNTS, USERS, JOBS = 20, 2, 100


@pytest.fixture
def years(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HistoryOnSlurm:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    with SimulatedWaldur(scenario=scenario(ACCOUNTS)) as waldur:
        yield HistoryOnSlurm(slurm, waldur, tmp_path)


def test_a_year_of_many_accounts_is_twelve_sacct_calls(years: HistoryOnSlurm) -> None:
    """Jobs go over the borders of months; what was told adds up to what the rows say, to the last cent."""
    counted = years.fill(YEAR, USERS, JOBS)
    years.load(YEAR)
    assert years.heard.words == [word for m in YEAR for word in (f"{m} begun", f"{m} done")]
    assert years.started() == {"sacct": 12, "sacctmgr": 1}
    assert years.shown() == in_units(counted)
    years.waldur.requests.reset()
    years.load(YEAR[:2])
    assert years.waldur.requests.count("POST *") == 0
