# SPDX-License-Identifier: MIT
"""Orders, members and a report through the real slurmrestd of each generation that has one, on a host without SLURM's
commands. With SLURM_BY_REST=1 all tests of passes go this way.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.run import passes
from rig import job_rows
from rig.job_rows import JobRow
from rig.site import REST_API
from rig.slurmrestd import Slurmrestd
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.membership.on_slurm import TEAM, OnSlurm
from tests.backends.conftest import NO_COMMANDS

NOW = datetime(2026, 4, 30, 23, tzinfo=UTC)


def test_allocations_live_through_slurmrestd_alone(
    real_slurmrestd: Slurmrestd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = real_slurmrestd.cluster
    slurm.reset()
    monkeypatch.setenv(REST_API, json.dumps(real_slurmrestd.access))
    with SimulatedWaldur() as waldur:
        waldur.store.clock.freeze(NOW)
        backend = {"slurm_bin_path": NO_COMMANDS}
        keys = {"reporting_backend": "slurm", "policy": {"max_removed_percent": 100}}
        site = OnSlurm(slurm, waldur, tmp_path, backend=backend, **keys)
        one, two = site.allocate_all("one", "two", cpu=10)
        site.converge()
        assert site.members("a_one") == site.members("a_two") == TEAM
        assert site.assoc("user,grptresmins", "a_one")[0] == "|cpu=600"
        site.join("newcomer")
        site.leave("ggran6")
        assert not site.sync().failed
        staying = TEAM - {"ggran6"} | {"newcomer"}
        assert site.members("a_one") == site.members("a_two") == staying
        assert "ggran6" not in site.defaults()
        site.in_step()

        start, hours = NOW - timedelta(days=3), {"hholt7": 2, "newcomer": 5}
        asked = {"cpu": 4, "mem": 10}
        ran = ((user, start + timedelta(hours=long)) for user, long in hours.items())
        job_rows.add(slurm, [JobRow("a_one", user, start, end, asked) for user, end in ran])
        report = passes.report_usage(site.site, clock=lambda: NOW)
        assert (report.error, report.failed) == (None, False)
        usage = {(row.resource_uuid, row.component_type): row.usage for row in waldur.store.usages}
        assert (usage[one, "cpu"], usage.get((two, "cpu"), 0)) == (4 * sum(hours.values()), 0)
        of_cpu = {row.uuid for row in waldur.store.usages if row.component_type == "cpu"}
        shares = {r.username: r.usage for r in waldur.store.user_usages if r.component_usage_uuid in of_cpu}
        assert shares == {user: 4 * long for user, long in hours.items()}

        site.end(two)
        site.processed(done=1)
        assert site.assoc("user", "a_two") == []
        site.in_step()
