# SPDX-License-Identifier: MIT
"""A report of 2,000 jobs in the real slurmdbd: its figures, its processes and its requests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.core.periods import Month
from agent.run.usage import planning
from agent.state import settled_usage
from rig import job_rows
from rig.job_rows import JobRow
from rig.reports import COMPONENTS, ReportsOnSlurm, scenario
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur

MONTH = Month(2026, 5)
RESOURCES, USERS, JOBS = 20, 3, 2000
HOUR = timedelta(hours=1)
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


def test_a_second_report_reads_only_what_ended_since_and_tells_the_same(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    monkeypatch.setattr(planning, "LARGE_OFFERING", 1)
    with SimulatedWaldur(scenario=scenario(10)) as waldur:
        site = ReportsOnSlurm(slurm, waldur, tmp_path, MONTH)
        site.at(datetime(2026, 5, 20, 12, tzinfo=UTC))
        members = site.members(USERS)
        job_rows.add_accounts(slurm, members)
        rows = [r for r in job_rows.random_jobs(members, MONTH, 300) if r.end and r.end < site.now]
        job_rows.add(slurm, rows)
        first = site.report()
        assert (first.error, site.shown()) == (None, site.expected(rows))
        # Associations, what slurmctld has to tell, this month, and the one before.
        assert first.effort.commands == {"read": 4}
        settled = settled_usage.load(site.site.state_dir, site.site.offering.uuid)
        assert settled
        assert settled.before == int(site.now.timestamp()) - 6 * 3600
        assert 0 < settled.months[str(MONTH)].records < len(rows)
        account = min(members)
        asked = {"cpu": 7, "mem": 10}
        told_late = JobRow(account, members[account][0], site.now - 5 * HOUR, site.now, asked)
        site.at(site.now + HOUR)
        rows.append(replace(told_late, start=site.now - HOUR, end=site.now))
        job_rows.add(slurm, rows[-1:])
        second = site.report()
        assert (second.error, site.shown()) == (None, site.expected(rows))
        # Associations, whether users were renamed, this month; the one before is closed for this token.
        assert second.effort.commands == {"read": 3}
        assert settled_usage.load(site.site.state_dir, site.site.offering.uuid) == settled
        rows.append(told_late)
        job_rows.add(slurm, rows[-1:])
        third = site.report()
        assert (third.error, site.shown()) == (None, site.expected(rows))
        assert settled_usage.load(site.site.state_dir, site.site.offering.uuid) != settled, "a full count"
