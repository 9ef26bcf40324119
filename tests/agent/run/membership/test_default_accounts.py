# SPDX-License-Identifier: MIT
"""Default accounts on the real SLURM: no user gets one in which jobs count for no allocation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.membership.on_slurm import OnSlurm

pytestmark = pytest.mark.every_slurm(one_of=1)

Make = Callable[..., OnSlurm]
TEAM = {"ffrost5", "ggran6", "hholt7"}
# What the database still counts as active when squeue does not is left to the next pass.
PASSES_TO_LEAVE = 4


@pytest.fixture
def make(slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path) -> Make:
    def made(**backend: Any) -> OnSlurm:
        return OnSlurm(slurm, waldur, tmp_path, backend=backend)

    return made


def submit(slurm: SlurmCluster, user: str, *words: str) -> list[str]:
    """Return the accounts in which a new job of the user waits or runs; none where SLURM refuses it."""
    slurm.run("sbatch", "--hold", f"--uid={user}", "--chdir=/tmp", *words, "--wrap", "true")
    return slurm.ask("squeue", "-h", f"--user={user}", "-o", "%a").split()


@pytest.mark.parametrize("policy", ["common", "individual", "none"])
def test_with_root_as_the_default_account_members_get_their_allocations_and_run_there(
    slurm: SlurmCluster, make: Make, policy: str
) -> None:
    """Root has no limit and is not reported: `sbatch` without -A must not run there."""
    site = make(default_account="root", default_account_policy=policy)
    site.allocate("one")
    site.converge()
    site.join("jobs1")
    site.sync()
    assert site.defaults()["jobs1"] == "a_one"
    assert site.members("root") == {"root"}
    assert submit(slurm, "jobs1") == ["a_one"]
    site.in_step()
    slurm.ask("scancel", "--user=jobs1")
    site.leave("jobs1")
    for _ in range(PASSES_TO_LEAVE):
        site.sync()
    assert site.members("a_one") == TEAM
    assert slurm.run("sbatch", "--uid=jobs1", "--chdir=/tmp", "--wrap", "true").returncode
    site.in_step()


def test_a_default_account_that_takes_no_jobs_is_given_and_kept_as_the_default(
    slurm: SlurmCluster, make: Make
) -> None:
    """Members name their allocation's account, and go back to that default where they leave the account."""
    slurm.ask("sacctmgr", "-i", "add", "account", "name=no_jobs", "GrpSubmitJobs=0")
    site = make(default_account="no_jobs", root_account="root", default_account_policy="common")
    site.allocate("one")
    site.converge()
    site.join("jobs1")
    site.sync()
    assert site.defaults()["jobs1"] == "no_jobs"
    assert submit(slurm, "jobs1") == []
    assert submit(slurm, "jobs1", "-A", "a_one") == ["a_one"]
    site.in_step()
    slurm.ask("scancel", "--user=jobs1")
    slurm.ask("sacctmgr", "-i", "modify", "user", "where", "name=jobs1", "set", "DefaultAccount=a_one")
    site.leave("jobs1")
    for _ in range(PASSES_TO_LEAVE):
        site.sync()
    assert site.members("a_one") == TEAM
    assert site.defaults()["jobs1"] == "no_jobs"
    assert submit(slurm, "jobs1") == []


def test_who_leaves_and_was_given_root_once_gets_another_account_as_the_default(
    slurm: SlurmCluster, make: Make
) -> None:
    """Associations with root as an agent with the policy `common` made them before."""
    site = make(default_account="root", default_account_policy="common")
    site.allocate("one")
    site.allocate("two", project=1)
    site.converge()
    for project in (0, 1):
        site.join("jobs1", project=project)
    slurm.ask("sacctmgr", "-i", "add", "user", "name=jobs1", "account=a_one,root")
    site.sync()
    assert (site.defaults()["jobs1"], site.members("root")) == ("a_one", {"root", "jobs1"})
    site.leave("jobs1")
    site.sync()
    assert site.members("a_one") == TEAM
    assert submit(slurm, "jobs1") == ["a_two"]
