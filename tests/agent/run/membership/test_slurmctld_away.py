# SPDX-License-Identifier: MIT
"""slurmctld away, slurmdbd not, on the real SLURM: only what needs to know the jobs waits, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.run import passes
from agent.run.results import PassReport
from rig.processes import wait_until
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.membership.on_slurm import OnSlurm

pytestmark = [pytest.mark.by_commands, pytest.mark.every_slurm(one_of=10)]

TEAM = {"ffrost5", "ggran6", "hholt7"}
OTHER_TEAM = {"iilves8", "jjansen9", "akask10"}
PASSES_TO_LEAVE = 4
REASON = "which jobs still run is not known, so no member is removed and nothing ends now: "
SILENT = "slurmctld does not answer"


@pytest.fixture
def site(
    slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OnSlurm:
    """SLURM's commands wait two seconds for slurmctld instead of ten."""
    patient = Path(slurm.env["SLURM_CONF"])
    hurried = tmp_path / "slurm.conf"
    hurried.write_text(f"{patient.read_text()}MessageTimeout=2\n")
    monkeypatch.setenv("SLURM_CONF", str(hurried))
    return OnSlurm(slurm, waldur, tmp_path)


def back(site: OnSlurm) -> None:
    site.slurm.start_slurmctld()
    wait_until("slurmctld", lambda: site.slurm.run("squeue", "-h").returncode == 0)


def waiting(report: PassReport) -> dict[str, str]:
    return {each.account: each.message for each in report.results if each.result == "waiting"}


def test_a_pass_adds_and_raises_while_one_who_leaves_waits(site: OnSlurm) -> None:
    site.allocate("one")
    site.allocate("two", project=1)
    site.converge()
    idle = site.sync().effort.commands["read"]
    site.leave("hholt7")
    site.join("newcomer", project=1)
    site.slurm.stop_slurmctld()
    report = site.sync()
    assert site.changes(report, reasons=False) == ["add member newcomer to a_two"]
    assert site.members("a_two") == OTHER_TEAM | {"newcomer"}
    assert site.members("a_one") == TEAM
    assert waiting(report).keys() == {"a_one"}
    assert waiting(report)["a_one"].startswith(REASON) and SILENT in waiting(report)["a_one"]
    assert {each.action.line() for each in report.refused} == {
        "block member hholt7 in a_one",
        "cancel jobs of hholt7 in a_one",
        "remove member hholt7 from a_one",
    }
    # One squeue more than an idle pass, and the accounts that were changed are read back.
    assert report.effort.commands == {"read": idle + 3, "write": 1}
    assert report.retryable_error is not None and SILENT in str(report.retryable_error)
    assert not report.failed and report.error is None
    back(site)
    for _ in range(PASSES_TO_LEAVE):
        site.sync()
    assert site.members("a_one") == TEAM - {"hholt7"}
    site.in_step()


def test_orders_make_and_change_accounts_while_one_that_ends_waits(site: OnSlurm) -> None:
    old, going = site.allocate_all("old", "going")
    site.converge()
    project = site.waldur.seed.project_uuids[1]
    made = site.waldur.place_create_order(project, "new", limits={"cpu": 10}, slug="new")
    raised = site.waldur.orders.place_update(old, {"cpu": 20})
    ended = site.waldur.orders.place_terminate(going)
    site.slurm.stop_slurmctld()
    report = passes.process_orders(site.orders)
    assert {each.order_uuid: each.result.value for each in report.orders} == {
        made: "done",
        raised: "done",
        ended: "waiting",
    }, report.as_json()
    assert site.members("a_new") == OTHER_TEAM
    assert site.assoc("grptresmins", "a_old")[0] == "cpu=1200"
    assert site.members("a_going") == TEAM
    assert waiting(report).keys() == {"a_going"}
    assert waiting(report)["a_going"].startswith(REASON) and SILENT in waiting(report)["a_going"]
    assert report.effort.commands["read"] == 5
    assert report.retryable_error is not None
    assert site.waldur.order(ended).state.value == "pending-provider"
    back(site)
    for _ in range(PASSES_TO_LEAVE):
        report = passes.process_orders(site.orders)
    assert site.waldur.order(ended).state.value == "done", report.as_json()
    assert site.members("a_going") == set()


def test_a_slurmctld_that_takes_connections_and_says_nothing_is_asked_once(site: OnSlurm) -> None:
    """As one that is very busy. Nothing is written: slurmdbd would wait 40 s for its answer after each change."""
    site.allocate("one")
    site.converge()
    idle = site.sync().effort.commands["read"]
    site.leave("hholt7")
    site.slurm.servers.freeze("slurmctld")
    try:
        report = site.sync()
    finally:
        site.slurm.servers.resume("slurmctld")
    assert waiting(report).keys() == {"a_one"}
    assert "slurmctld does not answer: slurm_load_jobs error: Socket timed out" in waiting(report)["a_one"]
    assert report.effort.commands == {"read": idle + 1}
    assert site.members("a_one") == TEAM


def test_partitions_that_cannot_be_looked_up_keep_no_member_out(
    slurm: SlurmCluster, site: OnSlurm, tmp_path: Path
) -> None:
    site = OnSlurm(slurm, site.waldur, tmp_path, backend={"default_partition": "main"})
    slurm.stop_slurmctld()
    site.allocate("one")
    back(site)
    site.converge()
    slurm.stop_slurmctld()
    assert set(site.assoc("user,partition", "a_one")) == {"|", *(f"{user}|main" for user in TEAM)}
    site.join("newcomer")
    assert site.changes(site.sync(), reasons=False) == ["add member newcomer to a_one on main"]
