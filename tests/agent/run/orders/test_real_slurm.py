# SPDX-License-Identifier: MIT
"""Orders on the real SLURM, against the simulated Waldur, pass by pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.run import passes
from agent.run.results import Result
from rig.site import configuration, site_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur

pytestmark = pytest.mark.every_slurm(one_of=1)


def test_a_create_order_becomes_an_account_with_limits_and_members(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    with SimulatedWaldur() as waldur:
        site = site_of(configuration(waldur, tmp_path))
        project = waldur.seed.project_uuids[0]
        order_uuid = waldur.place_create_order(project, "First light", limits={"cpu": 10, "mem": 2})
        report = passes.process_orders(site)
    assert [o.result for o in report.orders] == [Result.DONE], report.as_json()
    assert waldur.order(order_uuid).state.value == "done"
