# SPDX-License-Identifier: MIT
"""A report of 2,000 jobs in the real slurmdbd: its figures, its processes and its requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.periods import Month
from rig.reports import COMPONENTS, ReportsOnSlurm, scenario
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur

MONTH = Month(2026, 5)
RESOURCES, USERS, JOBS = 20, 3, 2000
SETS = "POST marketplace-component-usages/set_usage/"
SHARES = "POST marketplace-component-usages/{uuid}/set_user_usages/"


def test_a_month_of_jobs_is_told_as_they_ran_and_not_twice(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    with SimulatedWaldur(scenario=scenario(RESOURCES)) as waldur:
        site = ReportsOnSlurm(slurm, waldur, tmp_path, MONTH)
        rows = site.fill(site.members(USERS), JOBS)
        waldur.requests.reset()
        first = site.report()
        asked = waldur.request_counts()
        assert (first.error, first.counted()) == (None, {"done": RESOURCES})
        assert site.shown() == site.expected(rows)
        # Associations, this month, and the one before: jobs that ran over the border; it is closed for this token.
        assert first.effort.commands == {"read": 3}
        assert asked.pop(SETS) == RESOURCES + 1
        assert asked.pop(SHARES) == RESOURCES * len(COMPONENTS)
        # Offering, resources, users, the server's age; records and shares of two months; the new records.
        assert sum(asked.values()) == 4 + 2 * 2 + 1, asked
        shares = {share.username for share in waldur.store.user_usages}
        assert shares == {row.user for row in rows if site.expected([row])}
        waldur.requests.reset()
        second = site.report()
        assert (second.in_step, second.counted(), second.error) == (RESOURCES, {}, None)
        assert not [line for line in waldur.request_counts() if line.startswith("POST")]
