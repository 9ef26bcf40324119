# SPDX-License-Identifier: MIT
"""Passes on a cluster that holds many associations of others: 1,000, and 10,000 in a full run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rig import large_tree
from rig.slurm_cluster import SlurmCluster
from tests.agent.run.membership.on_slurm import TEAM, Make, make
from tests.scale import FULL

__all__ = ["make"]

pytestmark = pytest.mark.every_slurm(one_of=1)
OTHERS = 10_000 if FULL else 1_000


@pytest.fixture
def crowded(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    large_tree.add(slurm, large_tree.others(OTHERS))
    yield slurm
    large_tree.clear(slurm)


def others(slurm: SlurmCluster) -> str:
    columns = "acct, user, is_def, deleted, shares, grp_tres_mins, grp_submit_jobs, max_submit_jobs, qos"
    where = "acct LIKE 'other%' ORDER BY id_assoc"
    return slurm.sql(f"SELECT {columns} FROM {slurm.cluster}_assoc_table WHERE {where}")


def test_orders_and_members_come_and_go_and_what_is_others_stays(crowded: SlurmCluster, make: Make) -> None:
    before = others(crowded)
    site = make(policy={"max_removed_percent": 100})
    first, _ = site.allocate_all("one", "two")
    site.converge()
    assert site.members("a_one") == TEAM
    site.leave("ggran6")
    site.join("newcomer", "o0_0")  # the last is somebody of the others
    assert not site.sync().failed
    assert site.members("a_one") == site.members("a_two") == TEAM - {"ggran6"} | {"newcomer", "o0_0"}
    site.change(first, paused=True)
    site.sync()
    site.leave("o0_0")
    assert not site.sync().failed
    assert site.defaults()["o0_0"] == "other0"
    assert others(crowded) == before
    site.in_step()
