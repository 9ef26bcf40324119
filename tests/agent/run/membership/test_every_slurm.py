# SPDX-License-Identifier: MIT
"""Passes that write what the generations of SLURM take differently: default accounts and partitions."""

from __future__ import annotations

import pytest

from agent.core.actions import RemoveMember
from rig.processes import wait_until
from rig.slurm_cluster import SlurmCluster
from tests.agent.run.membership.on_slurm import TEAM, Make, OnSlurm, make

__all__ = ["make"]

pytestmark = pytest.mark.every_slurm(one_of=1)
ASIDE = "GrpSubmitJobs=0 MaxSubmitJobs=0 fairshare=parent"


def offering(make: Make, *partitions: str) -> OnSlurm:
    """A site with an offering of these partitions."""
    site = make(backend={"enforce_offering_partitions": True}, policy={"max_removed_percent": 100})
    site.waldur.store.offerings[site.waldur.seed.offering_uuid].partitions = list(partitions)
    return site


def partitioned(make: Make) -> OnSlurm:
    """A site whose members have one account, on two partitions."""
    site = offering(make, "gpu", "main")
    site.allocate("one")
    site.converge()
    return site


def rows(site: OnSlurm, account: str) -> set[str]:
    return {row for row in site.assoc("user,partition", account) if row[0] != "|"}


def project_of(slurm: SlurmCluster, account: str) -> str:
    found = slurm.ask("sacctmgr", "-nP", "show", "assoc", f"account={account}", "format=parentname,user")
    return next(row.removesuffix("|") for row in found.splitlines() if row.endswith("|"))


def test_the_partition_by_which_an_account_is_the_default_goes_and_the_others_stay(
    slurm: SlurmCluster, make: Make
) -> None:
    """24.11 refuses it of whoever stays in the account: the pass was stuck for ever."""
    site = partitioned(make)
    site = offering(make, "main")
    assert not site.sync().failed
    assert rows(site, "a_one") == {f"{user}|main" for user in TEAM}
    assert {site.defaults()[user] for user in TEAM} == {"a_one"}
    assert site.members(project_of(slurm, "a_one")) == set()
    site.in_step()


def test_who_has_jobs_on_the_partition_keeps_it_and_the_default_account(
    slurm: SlurmCluster, make: Make
) -> None:
    site = partitioned(make)
    site.join("jobs1")
    site.sync()
    slurm.ask(
        "sbatch",
        "--uid=jobs1",
        "--chdir=/tmp",
        "-o",
        "/dev/null",
        "-p",
        "gpu",
        "-t",
        "5",
        "--wrap",
        "sleep 300",
    )
    ours = ("squeue", "-h", "--user=jobs1", "--states=R", "-o", "%a")
    wait_until("jobs1's job", lambda: slurm.ask(*ours) == "a_one\n")
    # It is the database that refuses the removal on 22.05: not before it knows the job.
    wait_until("the job in the database", lambda: "1" in slurm.sql("SELECT COUNT(*) FROM test_job_table"))
    site = offering(make, "main")
    site.sync()
    assert rows(site, "a_one") == {*(f"{user}|main" for user in {*TEAM, "jobs1"}), "jobs1|gpu"}
    assert site.defaults()["jobs1"] == "a_one"
    assert site.members(project_of(slurm, "a_one")) == set()
    slurm.ask("scancel", "--user=jobs1")
    wait_until("no job", lambda: not slurm.ask("squeue", "-h", "--user=jobs1"))

    def is_gone() -> bool:
        site.sync()
        return rows(site, "a_one") == {f"{user}|main" for user in {*TEAM, "jobs1"}}

    wait_until("the end of the partition", is_gone)
    assert site.defaults()["jobs1"] == "a_one"
    site.in_step()


def test_a_default_account_that_was_put_aside_when_a_pass_was_cut_off_comes_back(
    slurm: SlurmCluster, make: Make
) -> None:
    site = partitioned(make)
    project = project_of(slurm, "a_one")
    slurm.change(
        f"add user name=ggran6 account={project} DefaultAccount={project} {ASIDE}",
        "remove user where name=ggran6 account=a_one partition=gpu",
        # One whose last step failed, and one who left in the middle.
        f"add user name={min({*TEAM} - {'ggran6'})} account={project} {ASIDE}",
        f"add user name=gone account={project} DefaultAccount={project} {ASIDE}",
    )
    site = offering(make, "main")
    site.sync()
    site.in_step()
    assert rows(site, "a_one") == {f"{user}|main" for user in TEAM}
    assert {site.defaults()[user] for user in TEAM} == {"a_one"}
    assert site.members(project) == set()


def test_a_default_account_that_people_closed_by_hand_stays(slurm: SlurmCluster, make: Make) -> None:
    site = partitioned(make)
    project = project_of(slurm, "a_one")
    by_hand = (
        f"add user name=ggran6 account={project} DefaultAccount={project} GrpSubmitJobs=0 fairshare=parent"
    )
    slurm.ask("sacctmgr", "-i", *by_hand.split())
    site = offering(make, "main")
    site.sync()
    site.in_step()
    assert rows(site, "a_one") == {f"{user}|main" for user in TEAM}
    assert (site.members(project), site.defaults()["ggran6"]) == ({"ggran6"}, project)


def test_who_leaves_the_default_account_has_another_one_or_none(slurm: SlurmCluster, make: Make) -> None:
    """Whose last account it is; who stays in another allocation, or in an account of the site's own; who leaves two."""
    site = make(policy={"max_removed_percent": 100})
    site.allocate("one")
    site.allocate("two", project=1)
    site.converge()
    for name in ("last", "both", "byhand", "two"):
        site.join(name)
    for name in ("both", "two"):
        site.join(name, project=1)
    site.sync()
    slurm.change("add account name=own", "add user name=byhand account=own")
    slurm.ask("sacctmgr", "-i", "modify", "user", "where", "name=both,two", "set", "DefaultAccount=a_one")
    assert {site.defaults()[name] for name in ("last", "both", "byhand", "two")} == {"a_one"}
    site.leave("last", "both", "byhand", "two")
    site.leave("two", project=1)
    assert not site.sync().failed
    assert site.members("a_one") == TEAM
    left = {name: site.defaults().get(name) for name in ("last", "both", "byhand", "two")}
    assert left == {"last": None, "both": "a_two", "byhand": "own", "two": None}
    site.in_step()


def test_nobody_leaves_the_default_account_who_stays_in_another_one_for_now(
    slurm: SlurmCluster, make: Make
) -> None:
    """22.05 takes the default account away then, 24.11 refuses, which is final for a pass."""
    site = make()
    site.allocate("one")
    slurm.change("add account name=own", "add user name=root account=own,a_one DefaultAccount=a_one")
    slurm.ask("sbatch", "-A", "own", "--hold", "--wrap", "true")
    wait_until("the job in the database", lambda: "1" in slurm.sql("SELECT COUNT(*) FROM test_job_table"))
    leaving = [
        RemoveMember(account="own", user="root"),
        RemoveMember(account="a_one", user="root", is_default=True),
    ]
    outcomes = {outcome.action.account: outcome for outcome in site.site.backend.apply(leaving)}
    assert {account: type(each.error).__name__ for account, each in outcomes.items()} == {
        "own": "JobsStillActive",
        "a_one": "JobsStillActive",
    }
    assert outcomes["a_one"].commands == ()
    assert "root" in site.members("a_one")
    assert site.defaults()["root"] == "a_one"


@pytest.mark.by_commands
def test_members_of_many_accounts_leave_at_once_and_those_who_stay_in_one_of_them_do(
    slurm: SlurmCluster, make: Make
) -> None:
    """Most of them have their default account there, whose end 22.05 refuses after another association's."""
    site = make()
    accounts = [f"p{number}" for number in range(5)]
    for account in accounts:
        users = ",".join(f"{account}_{each}" for each in range(4))
        slurm.change(f"add account name={account}", f"add user name={users} account={account}")
    slurm.change(
        "add account name=elsewhere",
        "add user name=p0_0,p1_0,p2_0,p3_0,p4_0 account=elsewhere DefaultAccount=elsewhere",
        # Between the plan and the command.
        "add user name=p0_0 account=p1",
        "add user name=colleague account=p0,p4",
    )
    leaving = [
        RemoveMember(account=account, user=f"{account}_{each}", is_default=each > 0)
        for account in accounts
        for each in range(4)
    ]
    outcomes = site.site.backend.apply(leaving)
    assert all(outcome.done for outcome in outcomes)
    found = {account: site.members(account) for account in (*accounts, "elsewhere")}
    expected = {account: set[str]() for account in accounts} | {"p0": {"colleague"}, "p4": {"colleague"}}
    assert found == {**expected, "p1": {"p0_0"}, "elsewhere": {f"{account}_0" for account in accounts}}
    assert len({outcome.commands for outcome in outcomes}) == 3


@pytest.mark.by_commands
def test_who_has_a_job_in_one_of_many_accounts_stays_in_that_alone_and_all_others_leave(
    slurm: SlurmCluster, make: Make
) -> None:
    site = make()
    accounts = [f"p{number}" for number in range(4)]
    for account in accounts:
        slurm.change(
            f"add account name={account}", f"add user name={account}_0,{account}_1 account={account}"
        )
    slurm.ask("sacctmgr", "-i", "add", "user", "name=jobs1", "account=p1,p2", "DefaultAccount=p1")
    job = ("--uid=jobs1", "--account=p1", "--chdir=/tmp", "-o", "/dev/null", "-t", "5", "--wrap", "sleep 300")
    slurm.ask("sbatch", *job)
    wait_until("the job", lambda: slurm.ask("squeue", "-h", "--states=R", "-o", "%a") == "p1\n")
    wait_until("the job in the database", lambda: "1" in slurm.sql("SELECT COUNT(*) FROM test_job_table"))
    leaving = [
        RemoveMember(account=name, user=f"{name}_{n}", is_default=True) for name in accounts for n in (0, 1)
    ]
    own = [
        RemoveMember(account="p2", user="jobs1"),
        RemoveMember(account="p1", user="jobs1", is_default=True),
    ]
    outcomes = site.site.backend.apply([*leaving, *own])
    assert [(o.action, type(o.error).__name__) for o in outcomes if o.error] == [(own[1], "JobsStillActive")]
    assert [name for name in accounts if site.members(name)] == ["p1"]
    assert site.members("p1") == {"jobs1"}
    assert site.defaults()["jobs1"] == "p1"
