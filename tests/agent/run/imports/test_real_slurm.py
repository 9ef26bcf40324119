# SPDX-License-Identifier: MIT
"""Accounts of the real SLURM that have no resource are offered to who asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.run.imports import mode as imports
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.imports.test_imports import offers, project_account, request
from tests.agent.run.membership.on_slurm import OnSlurm

pytestmark = pytest.mark.every_slurm(one_of=1)


def test_an_account_that_an_administrator_made_is_offered_with_its_limits(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    with SimulatedWaldur() as waldur:
        site = OnSlurm(slurm, waldur, tmp_path, resource_import_enabled=True)
        site.allocate("one")
        project = project_account(waldur)
        slurm.change(
            f"add account a_old parent={project} GrpTRESMins=cpu=600",
            "add user ann account=a_old",
            "add account physics parent=root",
        )
        before = slurm.ask("sacctmgr", "-nP", "show", "assoc")
        said = imports.run(site.site, request(waldur))
        assert said == "1 accounts offered, 0 were before, 0 belong to no project"
        assert offers(waldur) == [("a_old", waldur.seed.project_uuids[0], {"limits": {"cpu": 10}})]
        assert slurm.ask("sacctmgr", "-nP", "show", "assoc") == before
