# SPDX-License-Identifier: MIT
"""A report of 2,000 jobs in the real slurmdbd: its figures, its processes and its requests."""

from __future__ import annotations

import getpass
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.periods import Month
from agent.run import passes
from agent.run.site import connect
from agent.run.usage import planning
from agent.state import finalised_usage
from rig import job_rows
from rig.job_rows import JobRow
from rig.processes import wait_until
from rig.reports import COMPONENTS, ReportsOnSlurm, scenario
from rig.site import configuration, settings_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur

pytestmark = pytest.mark.every_slurm(one_of=10)

MONTH = Month(2026, 5)
RESOURCES, USERS, JOBS = 20, 3, 2000
HOUR = timedelta(hours=1)
SETS = "POST marketplace-component-usages/set_usage/"
SHARES = "POST marketplace-component-usages/{uuid}/set_user_usages/"


def test_a_month_of_jobs_is_reported_as_they_ran_and_not_twice(slurm: SlurmCluster, tmp_path: Path) -> None:
    with SimulatedWaldur(scenario=scenario(RESOURCES)) as waldur:
        site = ReportsOnSlurm(slurm, waldur, tmp_path, MONTH)
        rows = site.fill(site.members(USERS), JOBS)
        waldur.requests.reset()
        first = site.report()
        asked = waldur.request_counts()
        assert (first.error, first.counted()) == (None, {"done": RESOURCES})
        assert site.reported() == site.expected(rows)
        # Associations, this month, and the one before: jobs that ran over the border; it is closed for this token.
        assert first.effort.commands == {"read": 3 + slurm.refused_reads}
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


@pytest.mark.by_commands
def test_a_second_report_reads_only_what_ended_since_and_reports_the_same(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "LARGE_OFFERING", 1)
    with SimulatedWaldur(scenario=scenario(10)) as waldur:
        site = ReportsOnSlurm(slurm, waldur, tmp_path, MONTH)
        site.at(datetime(2026, 5, 20, 12, tzinfo=UTC))
        members = site.members(USERS)
        job_rows.add_accounts(slurm, members)
        rows = [r for r in job_rows.random_jobs(members, MONTH, 300) if r.end and r.end < site.now]
        job_rows.add(slurm, rows)
        first = site.report()
        assert (first.error, site.reported()) == (None, site.expected(rows))
        # Associations, what slurmctld has to report, this month, and the one before.
        assert first.effort.commands == {"read": 4 + slurm.refused_reads}
        finalised = finalised_usage.load(site.site.state_dir, site.site.offering.uuid)
        assert finalised
        assert finalised.before == int(site.now.timestamp()) - 6 * 3600
        assert 0 < finalised.months[str(MONTH)].records < len(rows)
        account = min(members)
        asked = {"cpu": 7, "mem": 10}
        reported_late = JobRow(account, members[account][0], site.now - 5 * HOUR, site.now, asked)
        site.at(site.now + HOUR)
        rows.append(replace(reported_late, start=site.now - HOUR, end=site.now))
        job_rows.add(slurm, rows[-1:])
        second = site.report()
        assert (second.error, site.reported()) == (None, site.expected(rows))
        # Associations, whether users were renamed, this month; the one before is closed for this token.
        assert second.effort.commands == {"read": 3}
        assert finalised_usage.load(site.site.state_dir, site.site.offering.uuid) == finalised
        rows.append(reported_late)
        job_rows.add(slurm, rows[-1:])
        third = site.report()
        assert (third.error, site.reported()) == (None, site.expected(rows))
        assert finalised_usage.load(site.site.state_dir, site.site.offering.uuid) != finalised, "a full count"


@pytest.mark.by_commands
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_job_that_ends_between_two_commands_of_a_report_is_in_the_next(
    slurm: SlurmCluster, tmp_path: Path, step: int
) -> None:
    """Before the associations are read, this month, and the one before."""
    with SimulatedWaldur(scenario=scenario(10)) as waldur:
        names = [waldur.resource(uuid).backend_id for uuid in waldur.seed.resource_uuids[:2]]
        count, prefix = tmp_path / "count", tmp_path / "prefix"
        jobs = " ".join(f"sbatch -A {name} -o /dev/null --wrap 'sleep 2';" for name in names)
        # `sbatch -W` looks at its job after 2, 4 and more seconds only.
        jobs += ' while [ -n "$(squeue -h)" ]; do sleep 0.1; done;'
        prefix.write_text(
            f"#!/bin/sh\nif [ -f {count} ]; then echo >> {count}\n"
            f'if [ "$(wc -l < {count})" = {step} ]; then {{ {jobs} }} > /dev/null; fi; fi\nexec "$@"\n'
        )
        prefix.chmod(0o755)
        fine = {name: {**component, "unit_factor": 0.01} for name, component in COMPONENTS.items()}
        keys = {"order_processing_backend": "", "reporting_backend": "slurm"}
        backend = {"command_prefix": [str(prefix)], "slurm_bin_path": str(slurm.bin_path)}
        path = configuration(waldur, tmp_path, backend=backend, components=fine, **keys)
        settings = settings_of(path)
        site = connect(settings, settings.offerings[0], Mode.REPORT)
        user = getpass.getuser()
        accounts = {waldur.resource(uuid).backend_id: [user] for uuid in waldur.seed.resource_uuids}
        job_rows.add_accounts(slurm, accounts)
        slurm.ask("sbatch", "-A", names[0], "-o", "/dev/null", "--wrap", "sleep 1")
        known = ("sacct", "-a", "-X", "-n", "-P", "-S", "now-1hours", "-o", "State")
        wait_until("slurmdbd knows the first job", lambda: "COMPLETED" in slurm.ask(*known))
        count.touch()
        assert passes.report_usage(site).error is None
        assert len(count.read_text()) >= step
        wait_until("slurmdbd knows the others", lambda: slurm.ask(*known).count("COMPLETED") == 3)
        assert not passes.report_usage(site).failed
        usage = {row.resource_uuid: row.usage for row in waldur.store.usages if row.component_type == "cpu"}
        assert all(usage[uuid] > 3 for uuid in waldur.seed.resource_uuids[:2])
        assert {share.username for share in waldur.store.user_usages} == {user}
