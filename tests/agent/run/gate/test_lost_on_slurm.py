# SPDX-License-Identifier: MIT
"""The accounting database of the real SLURM is made anew: nothing is done until a person approves it, then all is made
again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.errors import AccountsLost
from agent.run.membership import rebuild
from rig import large_tree
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.membership.on_slurm import OnSlurm
from tests.world import approve

pytestmark = [pytest.mark.safety, pytest.mark.every_slurm(one_of=1)]

ACCOUNTS = ["a_one", "a_two", "a_three"]


def test_accounts_that_were_lost_are_made_again_once_that_is_approved(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    with SimulatedWaldur(scenario=Scenario(members_per_project=3)) as waldur:
        site = OnSlurm(slurm, waldur, tmp_path)
        site.allocate_all(*(name.removeprefix("a_") for name in ACCOUNTS), cpu=10)
        site.converge()
        people, limited = site.members("a_one"), site.assoc("user,grptresmins", "a_one")
        large_tree.clear(slurm)
        report = site.sync()
        assert isinstance(report.error, AccountsLost), report.as_json()
        (plan,) = rebuild.run_pass(site.site).held
        assert not any(site.members(name) for name in ACCOUNTS)
        approve(site.site, rebuild.KEY, plan.id)
        assert rebuild.run_pass(site.site).counted() == {"done": len(ACCOUNTS)}
        assert [site.members(name) for name in ACCOUNTS] == [people] * len(ACCOUNTS)
        assert sorted(site.assoc("user,grptresmins", "a_one")) == sorted(limited)
        site.in_step()
