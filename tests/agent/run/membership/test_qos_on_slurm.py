# SPDX-License-Identifier: MIT
"""QoS and partitions of accounts and members on the real SLURM."""

from __future__ import annotations

import pytest

from rig.slurm_cluster import SlurmCluster
from tests.agent.run.membership.on_slurm import BY_QOS, TEAM, Make, add_qos, make

pytestmark = pytest.mark.every_slurm(one_of=10)

__all__ = ["make"]


def test_a_paused_resource_gets_its_qos_and_comes_back(slurm: SlurmCluster, make: Make) -> None:
    add_qos(slurm, "slow", "stop")
    site = make(backend=BY_QOS)
    resource = site.allocate("one")
    site.converge()
    for flags, qos in (
        ({"paused": True}, "stop"),
        ({"paused": False, "downscaled": True}, "slow"),
        ({"downscaled": False}, "normal"),
    ):
        site.change(resource, **flags)
        assert not site.sync().failed
        assert set(site.assoc("user,qos,defaultqos", "a_one")) >= {f"|{qos}|{qos}"}
        assert site.waldur.resource(resource).backend_metadata["qos"] == qos
        site.in_step()


@pytest.mark.by_commands
def test_a_qos_of_a_state_that_does_not_exist_errs_no_resource_and_is_set_when_it_does(
    slurm: SlurmCluster, make: Make
) -> None:
    site = make(backend=BY_QOS)
    bad, good = site.allocate_all("one", "two")
    site.converge()
    site.change(bad, paused=True)
    site.join("newcomer")
    report = site.sync()
    assert site.members("a_one") == site.members("a_two") == TEAM | {"newcomer"}
    (stuck,) = (r for r in report.resources if r.result.value == "stuck")
    assert (stuck.resource_uuid, "stop" in stuck.message) == (bad, True)
    assert {site.waldur.resource(uuid).state.value for uuid in (bad, good)} == {"OK"}
    add_qos(slurm, "stop")
    site.sync()
    assert site.assoc("user,qos", "a_one")[0] == "|stop"
    site.in_step()


def test_where_qos_are_enforced_a_paused_account_takes_no_new_jobs(make: Make) -> None:
    site = make(backend={"qos_enforcement_enabled": True, "enforce_offering_qos": True})
    resource = site.allocate("one")
    site.converge()
    for paused, limit in ((True, "0"), (False, "")):
        site.change(resource, paused=paused)
        site.sync()
        assert f"|{limit}" in site.assoc("user,grpsubmit", "a_one")
        site.in_step()


@pytest.mark.by_commands
def test_the_budget_is_on_the_qos_of_the_account_and_a_pause_takes_no_qos_away(
    slurm: SlurmCluster, make: Make
) -> None:
    management = {"enabled": True, "skip_qos_swap": True, "apply_limits_to_qos": True}
    site = make(backend={"qos_management": management}, policy={"limit_cuts": "allow"})
    resource = site.allocate("one", cpu=10, mem=2)
    qos = ("sacctmgr", "-nP", "show", "qos", "format=name,flags,grptresmins")
    assert "a_one|DenyOnLimit,NoDecay|cpu=600,mem=120G" in slurm.ask(*qos).splitlines()
    own = "|a_one,normal|a_one"
    assert f"{own}||" in site.assoc("user,qos,defaultqos,grptresmins,grpsubmit", "a_one")
    site.converge()
    # A cut asks for what is used: of the QoS.
    site.waldur.orders.place_update(resource, {"cpu": 5, "mem": 2})
    site.processed(done=1)
    assert "a_one|cpu=300,mem=120G" in slurm.ask(*qos[:-1], "format=name,grptresmins").splitlines()
    for paused, limit in ((True, "0"), (False, "")):
        site.change(resource, paused=paused)
        assert not site.sync().failed
        assert f"{own}|{limit}" in site.assoc("user,qos,defaultqos,grpsubmit", "a_one")
        site.in_step()
    slurm.ask("sacctmgr", "-i", "modify", "qos", "where", "name=a_one", "set", "GrpTRESMins=cpu=1200")
    reads = site.sync().effort.commands["read"]
    assert (reads, site.waldur.resource(resource).limits) == (4, {"cpu": 20, "mem": 2})
    site.waldur.orders.place_terminate(resource)
    site.processed(done=1)
    assert slurm.ask(*qos[:-1], "format=name").split() == ["normal"]


@pytest.mark.every_slurm(one_of=1)
@pytest.mark.by_commands
def test_members_who_are_in_get_the_partitions_and_the_qos_of_now(slurm: SlurmCluster, make: Make) -> None:
    backend = {
        "qos_enforcement_enabled": True, "enforce_offering_qos": True, "enforce_offering_partitions": True,
        "default_account_policy": "individual",
    }  # fmt: skip
    site = make(backend=backend)
    offering = site.waldur.store.offerings[site.waldur.seed.offering_uuid]
    offering.partitions = ["gpu", "nosuch"]
    resource = site.allocate("one")
    site.converge()
    # A partition that is not there is looked for in each pass, until the offering is mended.
    assert site.sync().effort.commands["read"] == 4
    rows = "user,partition,qos,defaultqos"
    assert [row for row in site.assoc(rows, "a_one") if row[0] != "|"] == [
        f"{user}|gpu||" for user in sorted(TEAM)
    ]
    offering.partitions = ["main"]
    site.change(resource, attributes={"qos": "normal"})
    slurm.ask("sacctmgr", "-i", "add", "user", "name=ggran6", "account=a_one", "fairshare=parent")
    restarted = make(backend=backend)
    restarted.converge()
    assert [row for row in restarted.assoc(rows, "a_one") if row[0] != "|"] == [
        f"{user}|main|normal|normal" for user in sorted(TEAM)
    ]
    assert {restarted.defaults()[user] for user in TEAM} == {"a_one"}
    assert restarted.sync().effort.commands["read"] == 3


@pytest.mark.parametrize("key", ["default_partition", "enforce_offering_partitions"])
def test_a_partition_in_capitals_is_the_one_that_slurm_keeps_in_lower_case(make: Make, key: str) -> None:
    site = make(backend={key: True if key == "enforce_offering_partitions" else "Big"})
    site.waldur.store.offerings[site.waldur.seed.offering_uuid].partitions = ["Big", "main", "BIG"]
    site.allocate("one")
    wanted = {"big", "main"} if key == "enforce_offering_partitions" else {"big"}
    for _ in range(3):
        site.in_step()
        rows = site.assoc("user,partition", "a_one")
        assert sorted(row for row in rows if row[0] != "|") == sorted(
            f"{user}|{partition}" for user in TEAM for partition in wanted
        )


def test_a_qos_of_a_state_in_capitals_is_set_once_and_goes_with_the_state(
    slurm: SlurmCluster, make: Make
) -> None:
    add_qos(slurm, "slow", "stop")
    site = make(backend={"qos_default": "Normal", "qos_downscaled": "Slow", "qos_paused": "Stop"})
    resource = site.allocate("one")
    for paused, qos in ((True, "stop"), (False, "normal")):
        site.change(resource, paused=paused)
        site.converge()
        assert f"|{qos}|{qos}" in site.assoc("user,qos,defaultqos", "a_one")
