# SPDX-License-Identifier: MIT
"""Membership passes on the real SLURM, against the simulated Waldur."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.run.membership import rebuild
from rig.processes import wait_until
from rig.slurm_cluster import SlurmCluster
from tests.agent.run.membership.on_slurm import OTHER_TEAM, TEAM, Make, make

pytestmark = pytest.mark.every_slurm(one_of=10)

__all__ = ["make"]

# What the database still counts as active when squeue does not is left to the next pass.
PASSES_TO_LEAVE = 4


def run_job(slurm: SlurmCluster, user: str) -> None:
    """Start a long job and wait until it runs; the user of this machine must reach its script."""
    for folder in (slurm.folder.parent, slurm.folder / "slurmd"):
        folder.chmod(0o755)
    script = ("--chdir=/tmp", "-o", "/dev/null", "-t", "5", "--wrap", "sleep 300")
    slurm.ask("sbatch", f"--uid={user}", "-A", "a_one", *script)
    running = ("squeue", "-h", f"--user={user}", "--states=R")
    wait_until(f"{user}'s job", lambda: bool(slurm.ask(*running).strip()))


@pytest.mark.every_slurm(one_of=1)
def test_people_come_and_go_and_keep_a_valid_default_account(make: Make) -> None:
    site = make(policy={"max_removed_percent": 100})
    site.allocate_all("one", "two")
    site.allocate("three", project=1)
    site.converge()
    assert site.members("a_one") == site.members("a_two") == TEAM
    ggran = next(r.user_uuid for r in site.waldur.store.offering_users if r.username == "ggran6")
    site.waldur.people.add_member(site.waldur.seed.project_uuids[1], site.waldur.store.users[ggran].username)
    site.leave("ggran6", "hholt7")
    site.join("newcomer")
    site.leave("jjansen9", project=1)
    assert not site.sync().failed
    assert site.members("a_one") == site.members("a_two") == {"ffrost5", "newcomer"}
    assert site.members("a_three") == OTHER_TEAM - {"jjansen9"} | {"ggran6"}
    defaults = site.defaults()
    assert defaults["ggran6"] == "a_three"
    assert defaults["newcomer"] in ("a_one", "a_two")
    assert not {"hholt7", "jjansen9"} & set(defaults)
    site.in_step()


def test_who_was_added_by_hand_stays_where_the_site_wants_that(slurm: SlurmCluster, make: Make) -> None:
    site = make(preserve_unmanaged_backend_users=True)
    site.allocate("one")
    site.converge()
    slurm.ask("sacctmgr", "-i", "add", "user", "name=byhand", "account=a_one")
    site.leave("hholt7")
    assert site.changes(site.sync(), reasons=False) == ["remove member hholt7 from a_one"]
    assert site.members("a_one") == TEAM - {"hholt7"} | {"byhand"}
    assert site.assoc("user,maxsubmit", "a_one").count("byhand|") == 1
    site.in_step()


def test_limits_of_the_cluster_are_reported(slurm: SlurmCluster, make: Make) -> None:
    site = make()
    resource = site.allocate("one", cpu=10, mem=2)
    site.converge()
    slurm.ask("sacctmgr", "-i", "modify", "account", "name=a_one", "set", "GrpTRESMins=cpu=1200,mem=184320")
    site.sync()
    assert site.waldur.resource(resource).limits == {"cpu": 20, "mem": 3}
    site.in_step()


def test_limits_of_waldur_are_set(make: Make) -> None:
    site = make(limits_source="waldur", policy={"limit_cuts": "allow"})
    resource = site.allocate("one", cpu=10, mem=2)
    site.converge()
    for limits, stored in (
        ({"cpu": 20, "mem": 3}, "cpu=1200,mem=180G"),
        ({"cpu": 1.5, "mem": 3}, "cpu=90,mem=180G"),
    ):
        site.change(resource, limits=limits)
        site.sync()
        assert f"|{stored}" in site.assoc("user,grptresmins", "a_one")
        assert site.waldur.resource(resource).limits == limits
        site.in_step()


def test_limits_of_a_user_are_set_changed_and_lifted(make: Make) -> None:
    site = make()
    resource = site.allocate("one")
    site.converge()
    owner = next(r for r in site.waldur.store.offering_users if r.username == "ggran6")
    person = site.waldur.store.users[owner.user_uuid].username
    row = site.waldur.site.add_user_limit(resource, person, component_type="cpu", limit=2)
    for limit, stored in (("2", "cpu=120"), ("3", "cpu=180"), (None, "")):
        if limit is None:
            site.waldur.store.user_limits.remove(site.waldur.store.user_limits[row])
        else:
            site.waldur.site.change("user_limits", row, limit=limit)
        site.sync()
        assert f"ggran6|{stored}" in site.assoc("user,maxtresmins", "a_one")
        site.in_step()


def test_a_project_that_moves_takes_its_accounts_and_members_along(make: Make) -> None:
    site = make()
    site.allocate_all("one", "two")
    site.converge()
    with site.waldur.store.lock:
        old = site.waldur.store.customers[site.waldur.seed.customer_uuids[0]]
        site.waldur.store.customers.add(replace(old, uuid="c" * 32, slug="new-house", name="New House"))
    project = site.waldur.seed.project_uuids[0]
    site.waldur.site.change("projects", project, customer_uuid="c" * 32)
    report = site.sync()
    assert sorted(site.changes(report, reasons=False)) == [
        "create account c_new-house below root",
        "move account p_project-1-1 from c_kask-institute-1 to c_new-house",
    ]
    assert "|c_new-house" in site.assoc("user,parentname", "p_project-1-1")
    assert site.members("a_one") == TEAM
    site.in_step()


def test_what_is_changed_by_hand_right_after_a_pass_is_mended_by_the_next(
    slurm: SlurmCluster, make: Make
) -> None:
    """Each pass reads the whole tree. The move is in no table of transactions, the rest in the same second."""
    site = make()
    site.allocate("one")
    site.converge()
    slurm.change("modify account name=a_one set parent=root", "remove user where name=ffrost5 account=a_one")
    report = site.sync()
    assert sorted(site.changes(report, reasons=False)) == [
        "add member ffrost5 to a_one",
        "move account a_one from root to p_project-1-1",
    ]
    assert site.members("a_one") == TEAM
    site.in_step()


def test_a_resource_that_lost_its_account_gets_it_back(make: Make) -> None:
    site = make()
    resource = site.allocate("one")
    site.converge()
    site.change(resource, backend_id="")
    assert site.changes(site.sync(), reasons=False) == [f"claim account a_one for resource {resource}"]
    site.in_step()


def test_jobs_of_a_leaver_end_before_the_association_does_and_those_of_others_go_on(
    slurm: SlurmCluster, make: Make
) -> None:
    site = make()
    site.allocate("one", cpu=1000)
    site.join("jobs1", "jobs2")
    site.converge()
    for user in ("jobs1", "jobs2"):
        run_job(slurm, user)
    site.leave("jobs1")
    report = site.sync()
    assert site.changes(report, reasons=False) == [
        "block member jobs1 in a_one",
        "cancel jobs of jobs1 in a_one (1 active)",
        "remove member jobs1 from a_one",
    ]
    assert site.members("a_one") == TEAM | {"jobs2"}
    assert slurm.ask("squeue", "-h", "-o", "%u %T").split() == ["jobs2", "RUNNING"]
    site.in_step()


def test_who_submits_in_a_loop_gets_out_all_the_same(slurm: SlurmCluster, make: Make) -> None:
    site = make()
    site.allocate("one", cpu=1000)
    site.join("jobs1")
    site.converge()
    run_job(slurm, "jobs1")
    site.leave("jobs1")
    script = ("--chdir=/tmp", "-o", "/dev/null", "--wrap", "sleep 300")
    submit = ["sbatch", "--uid=jobs1", "-A", "a_one", *script]
    loop = subprocess.Popen(
        ["sh", "-c", 'while :; do "$@"; done', "loop", *submit],
        env=slurm.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until("more jobs", lambda: len(slurm.ask("squeue", "-h", "-u", "jobs1").splitlines()) > 3)
        for _ in range(PASSES_TO_LEAVE):
            site.sync()
            if "jobs1" not in site.members("a_one"):
                break
    finally:
        os.killpg(loop.pid, signal.SIGKILL)
        loop.wait()
    assert site.members("a_one") == TEAM


def test_a_team_emptied_by_mistake_is_held_and_a_member_joins_all_the_same(make: Make) -> None:
    site = make()
    resource = site.allocate("one")
    site.converge()
    site.leave(*TEAM)
    site.join("newcomer")
    report = site.sync()
    assert site.members("a_one") == TEAM | {"newcomer"}
    assert [len([a for a in plan.actions if a.verb == "remove member"]) for plan in report.held] == [3]
    assert site.waldur.resource(resource).state.value == "OK"


class TestTrouble:
    @pytest.mark.by_commands
    def test_slurmdbd_that_dies_between_two_batches_costs_time_and_nothing_else(
        self, slurm: SlurmCluster, make: Make
    ) -> None:
        site = make(limits_source="waldur")
        one, two = site.allocate_all("one", "two")
        site.converge()
        site.join("newcomer")
        site.leave("ggran6")
        site.change(one, limits={"cpu": 77}, last_sync=datetime.now(UTC) - timedelta(hours=1))
        runner: Any = site.site.backend._runner  # type: ignore[attr-defined]
        ways = {name: getattr(runner, name) for name in ("write", "write_after_question")}

        def dies_after(write: Any) -> Any:
            def dies_after_the_first(*args: Any, **kwargs: Any) -> Any:
                done = write(*args, **kwargs)
                slurm.stop_slurmdbd()
                return done

            return dies_after_the_first

        for name, write in ways.items():
            setattr(runner, name, dies_after(write))
        report = site.sync()
        for name, write in ways.items():
            setattr(runner, name, write)
        assert {r.result for r in report.resources} == {"retry"}
        assert report.effort.commands["write"] <= 2
        assert {site.waldur.resource(r).state.value for r in (one, two)} == {"OK"}
        slurm.start_slurmdbd()
        site.sync()
        assert site.members("a_one") == site.members("a_two") == TEAM - {"ggran6"} | {"newcomer"}
        assert "|cpu=4620" in site.assoc("user,grptresmins", "a_one")
        site.in_step()

    def test_an_outage_of_slurmdbd_removes_and_errs_nothing(self, slurm: SlurmCluster, make: Make) -> None:
        site = make()
        one = site.allocate("one")
        site.converge()
        site.leave("ggran6")
        slurm.stop_slurmdbd()
        report = site.sync()
        assert report.error is not None
        assert report.error.retryable
        slurm.start_slurmdbd()
        assert site.members("a_one") == TEAM
        assert site.waldur.resource(one).state.value == "OK"
        site.sync()
        assert site.members("a_one") == TEAM - {"ggran6"}

    @pytest.mark.by_commands
    @pytest.mark.parametrize("way", ["loaded", "single commands"])
    def test_one_bad_username_in_a_batch_of_fifty(
        self, slurm: SlurmCluster, make: Make, tmp_path: Path, way: str
    ) -> None:
        """The other forty-nine are in, the culprit is named, and the resource is none the worse."""
        site = make(backend={"slurm_bin_path": str(_refusing(tmp_path, slurm.bin_path, "culprit"))})
        resource = site.allocate("one")
        if way == "single commands":
            site.change(resource, attributes={})
            site.site.backend._writer._loader._refused = True  # type: ignore[attr-defined]
        site.converge()
        good = [f"good{number}" for number in range(49)]
        site.join("culprit", *good)
        report = site.sync()
        assert site.members("a_one") == TEAM | set(good)
        assert [(r.result, r.account) for r in report.resources] == [("stuck", "a_one")]
        assert "culprit" in report.resources[0].message
        assert not {name for name in good if name in report.resources[0].message.replace("culprit", "")}
        assert site.waldur.resource(resource).state.value == "OK"
        site.leave("culprit")
        site.sync()
        site.in_step()


def _refusing(folder: Path, programs: Path, name: str) -> Path:
    """SLURM's programs, with a sacctmgr that refuses to add one username."""
    made = folder / "bin"
    made.mkdir()
    for program in ("squeue", "scancel", "scontrol"):
        if shutil.which(program):
            os.symlink(programs / program, made / program)
    script = f"""#!/bin/sh
case "$*" in *" add "*{name}*) echo " Problem adding user: {name}" >&2; exit 1;; esac
for last; do :; done
if [ -f "$last" ] && grep -q {name} "$last"; then echo " Problem with requests: {name}" >&2; exit 1; fi
exec {programs}/sacctmgr "$@"
"""
    (made / "sacctmgr").write_text(script)
    (made / "sacctmgr").chmod(0o755)
    return made


def test_a_sync_that_is_forced_in_waldur_makes_an_account_again(slurm: SlurmCluster, make: Make) -> None:
    site = make(limits_source="waldur")
    site.allocate_all("one", "two", cpu=10)
    site.converge()
    # Newer releases than 22.05 keep the members of their default account.
    slurm.ask(
        "sacctmgr", "-i", "modify", "user", "where", f"name={','.join(TEAM)}", "set", "defaultaccount=a_two"
    )
    slurm.change("delete user where account=a_one", "delete account a_one")
    assert rebuild.run_forced(site.site).counted() == {"done": 1}
    assert site.members("a_one") == site.members("a_two") == TEAM
    assert "||cpu=600" in site.assoc("user,partition,grptresmins", "a_one")
    site.in_step()


@pytest.mark.by_commands
def test_what_was_bought_for_months_follows_the_end_of_the_resource_and_its_spending_limit(
    make: Make,
) -> None:
    """One component of Waldur, two TRES of the cluster."""
    pack = {
        "measured_unit": "packs",
        "accounting_type": "one",
        "label": "Packs",
        "target_components": {"cpu": {"factor": 60}, "mem": {"factor": 100}},
    }
    site = make(components={"pack": pack})
    site.waldur.site.change("offerings", site.waldur.seed.offering_uuid, components=[])
    resource = site.allocate("one", pack=2)

    def limits() -> dict[str, str]:
        row = next(row for row in site.assoc("user,grptresmins", "a_one") if row.startswith("|"))
        return dict(each.split("=") for each in row.strip("|").split(","))

    assert limits() == {"cpu": "120", "mem": "200M"}
    made = site.waldur.resource(resource).created.date()
    site.change(resource, end_date=made.replace(year=made.year + 1, day=min(made.day, 28)))
    assert not site.sync().failed
    assert limits() == {"cpu": "1440", "mem": "2400M"}
    site.change(resource, spending_limits={"pack": {"total": 3, "month": 1}})
    assert not site.sync(resource=resource).failed
    assert limits() == {"cpu": "180", "mem": "300M"}
    assert site.waldur.resource(resource).limits == {"pack": 2}
    site.in_step()
