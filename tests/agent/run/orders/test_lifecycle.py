# SPDX-License-Identifier: MIT
"""The life of allocations on the real SLURM: update, plan switch, restore, terminate, and names that are taken."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.core.actions import ClusterAction
from agent.core.plans import Outcome
from agent.run import passes
from agent.run.orders import mode as orders
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.orders.conftest import SiteFactory

pytestmark = pytest.mark.every_slurm(one_of=10)


def tree(slurm: SlurmCluster) -> dict[str, tuple[str, str, frozenset[str]]]:
    """Account -> (parent, GrpTRESMins, users)."""
    out = slurm.run("sacctmgr", "-nP", "show", "assoc", "format=account,user,parentname,grptresmins").stdout
    rows = [line.split("|") for line in out.splitlines()]
    users: dict[str, set[str]] = {}
    for account, user, _, _ in rows:
        users.setdefault(account, set()).update({user} - {""})
    return {a: (p, limits, frozenset(users[a])) for a, user, p, limits in rows if not user and a != "root"}


def defaults(slurm: SlurmCluster) -> dict[str, str]:
    out = slurm.run("sacctmgr", "-nP", "show", "user", "format=user,defaultaccount").stdout
    return dict(line.split("|") for line in out.splitlines())


def create(waldur: SimulatedWaldur, slug: str, *, project: int = 0, **limits: float) -> str:
    """Place a create order; the uuid of its resource."""
    project_uuid = waldur.seed.project_uuids[project]
    order = waldur.place_create_order(project_uuid, slug, limits=limits or {"cpu": 10}, slug=slug)
    return waldur.order(order).resource_uuid


def processed(site: orders.Site, expected: dict[str, int]) -> None:
    report = passes.process_orders(site)
    assert report.counted() == expected, report.as_json()


@pytest.mark.by_commands
def test_update_and_plan_switch_change_limits_and_nothing_else(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm()
    resource = create(waldur, "one", cpu=10, mem=1)
    processed(site, {"done": 1})
    before = tree(slurm)["a_one"]
    waldur.orders.place_update(resource, {"cpu": 5, "mem": 1})
    processed(site, {"done": 1})
    after = tree(slurm)["a_one"]
    assert (before[1], after[1]) == ("cpu=600,mem=60G", "cpu=300,mem=60G")
    assert before[0::2] == after[0::2]
    assert waldur.resource(resource).limits == {"cpu": 5, "mem": 1}
    processed(site, {})


def test_the_last_termination_takes_the_project_along_but_not_the_customer(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm()
    first, second = create(waldur, "one"), create(waldur, "two")
    processed(site, {"done": 2})
    waldur.orders.place_terminate(first)
    processed(site, {"done": 1})
    assert set(tree(slurm)) == {"c_kask-institute-1", "p_project-1-1", "a_two"}
    waldur.orders.place_terminate(second)
    processed(site, {"done": 1})
    assert set(tree(slurm)) == {"c_kask-institute-1"}
    assert [waldur.resource(uuid).state.value for uuid in (first, second)] == ["Terminated"] * 2


@pytest.mark.parametrize("policy", ["common", "individual", "none"])
def test_default_accounts_follow_the_policy_and_stay_valid_after_a_termination(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory, policy: str
) -> None:
    site = on_slurm(backend={"default_account_policy": policy})
    first = create(waldur, "one")
    processed(site, {"done": 1})
    second = create(waldur, "two")
    processed(site, {"done": 1})
    users = tree(slurm)["a_one"][2]
    wanted = {"common": "a_one", "individual": "a_two", "none": "a_one"}[policy]
    assert {defaults(slurm)[user] for user in users} == {wanted}
    for resource, left in ((second, "a_one"), (first, None)):
        waldur.orders.place_terminate(resource)
        processed(site, {"done": 1})
        kept = {defaults(slurm).get(user) for user in users}
        assert kept == {left}


def test_running_jobs_are_cancelled_before_a_termination(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm()
    resource = create(waldur, "busy", cpu=1000)
    processed(site, {"done": 1})
    slurm.ask("sacctmgr", "-i", "add", "user", "name=root", "account=a_busy", "fairshare=parent")
    slurm.ask("sbatch", "-A", "a_busy", "-o", "/dev/null", "--wrap", "sleep 300")
    waldur.orders.place_terminate(resource)
    processed(site, {"done": 1})
    assert "a_busy" not in tree(slurm)
    assert slurm.ask("squeue", "-h", "-A", "a_busy").strip() == ""
    assert defaults(slurm)["root"] == "root"


def test_an_account_with_children_is_not_removed_and_its_order_says_why(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm()
    resource = create(waldur, "mother")
    processed(site, {"done": 1})
    slurm.change("add account name=child parent=a_mother", "add user name=ffrost5 account=child")
    order = waldur.orders.place_terminate(resource)
    processed(site, {"failed": 1})
    assert "a_mother has accounts below it (child)" in waldur.order(order).error_message
    assert tree(slurm)["child"] == ("a_mother", "", frozenset({"ffrost5"}))
    assert waldur.resource(resource).state.value == "OK"


def test_soft_delete_keeps_the_account_without_members_and_restore_brings_them_back(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm(backend={"soft_delete": True})
    resource = create(waldur, "one", cpu=10, mem=1)
    processed(site, {"done": 1})
    before = tree(slurm)["a_one"]
    slurm.ask("sacctmgr", "-i", "add", "user", "name=root", "account=a_one", "fairshare=parent")
    slurm.ask("sbatch", "-A", "a_one", "-o", "/dev/null", "--wrap", "sleep 300")
    waldur.orders.place_terminate(resource)
    processed(site, {"done": 1})
    assert tree(slurm)["a_one"] == (before[0], "cpu=0,mem=0", frozenset())
    waldur.orders.place_restore(resource)
    processed(site, {"done": 1})
    assert tree(slurm)["a_one"] == before
    assert waldur.resource(resource).backend_id == "a_one"
    assert (
        slurm.ask("sacctmgr", "-nP", "show", "assoc", "where", "account=a_one", "user=", "format=grpsubmit")
        == "\n"
    )


def test_restore_makes_a_removed_account_again_under_its_old_name(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm()
    resource = create(waldur, "one")
    processed(site, {"done": 1})
    waldur.orders.place_terminate(resource)
    processed(site, {"done": 1})
    waldur.orders.place_restore(resource)
    processed(site, {"done": 1})
    assert tree(slurm)["a_one"][1] == "cpu=600"
    assert waldur.resource(resource).state.value == "OK"


def test_termination_of_what_is_gone_already_is_done(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm()
    resource = create(waldur, "one")
    processed(site, {"done": 1})
    slurm.reset()
    waldur.orders.place_terminate(resource)
    processed(site, {"done": 1})
    assert waldur.resource(resource).state.value == "Terminated"


def test_a_termination_that_was_cut_off_after_the_account_takes_the_project_along(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm()
    resource = create(waldur, "one")
    processed(site, {"done": 1})
    assert set(tree(slurm)) > {"a_one"}
    slurm.run("sacctmgr", "-i", "delete", "account", "a_one")
    left = set(tree(slurm))
    waldur.orders.place_terminate(resource)
    processed(site, {"done": 1})
    (gone,) = left - set(tree(slurm))
    assert gone.startswith("p_")
    assert waldur.resource(resource).state.value == "Terminated"


def test_a_backend_id_that_the_server_loses_is_written_again(
    waldur: SimulatedWaldur, on_slurm: SiteFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    waldur.site.configure(loses_backend_id=True, processor_delay_s=3600.0)
    site = on_slurm()
    resource = create(waldur, "one")
    apply = site.backend.apply

    def apply_as_it_is_lost(actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        assert waldur.resource(resource).backend_id == "a_one"
        if waldur.site.run_background():
            assert waldur.resource(resource).backend_id == ""
        return apply(actions)

    monkeypatch.setattr(site.backend, "apply", apply_as_it_is_lost)
    processed(site, {"done": 1})
    assert waldur.resource(resource).backend_id == "a_one"


def test_a_half_made_account_whose_name_waldur_lost_is_finished_not_doubled(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm()
    for name, parent in (
        ("c_kask-institute-1", "root"),
        ("p_project-1-1", "c_kask-institute-1"),
        ("a_one", "p_project-1-1"),
    ):
        slurm.ask("sacctmgr", "-i", "add", "account", f"name={name}", f"parent={parent}")
    resource = create(waldur, "one")
    processed(site, {"done": 1})
    assert waldur.resource(resource).backend_id == "a_one"
    assert len(tree(slurm)["a_one"][2]) == 2


def test_project_slug_names_are_counted_and_never_shared(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    uuid = waldur.seed.offering_uuid
    waldur.site.change("offerings", uuid, plugin_options={"account_name_generation_policy": "project_slug"})
    site = on_slurm()
    resources = [create(waldur, slug) for slug in ("one", "two", "three")]
    processed(site, {"done": 3})
    names = [waldur.resource(resource).backend_id for resource in resources]
    assert names == ["a_project-1-1", "a_project-1-1-0", "a_project-1-1-1"]
    assert set(names) < set(tree(slurm))


def test_long_names_are_cut_and_stay_different(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm(backend={"allocation_name_max_len": 12})
    resources = [create(waldur, f"very-long-name-{n}") for n in range(2)]
    processed(site, {"done": 2})
    assert [waldur.resource(resource).backend_id for resource in resources] == [
        "a_very-long-",
        "a_very-lon-0",
    ]


def test_the_flat_mode_has_no_customer_account(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    slurm.ask("sacctmgr", "-i", "add", "account", "name=flat", "parent=root")
    site = on_slurm(backend={"parent_account": "flat", "cluster_name": slurm.cluster})
    create(waldur, "one")
    processed(site, {"done": 1})
    assert {a: row[0] for a, row in tree(slurm).items()} == {
        "flat": "root", "p_project-1-1": "flat", "a_one": "p_project-1-1",
    }  # fmt: skip


def test_an_account_gets_its_own_qos_and_takes_it_along(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    management = {"enabled": True, "max_jobs": 5, "grp_tres": "cpu=4"}
    site = on_slurm(backend={"qos_management": management})
    resource = create(waldur, "one")
    processed(site, {"done": 1})
    qos = slurm.ask("sacctmgr", "-nP", "show", "qos", "format=name,flags,grptres,maxjobsperuser")
    assert "a_one|DenyOnLimit,NoDecay|cpu=4|5" in qos.splitlines()
    rows = slurm.ask(
        "sacctmgr", "-nP", "show", "assoc", "where", "account=a_one", "user=", "format=qos,defaultqos"
    )
    assert rows.splitlines() == ["a_one,normal|a_one"]
    waldur.orders.place_terminate(resource)
    processed(site, {"done": 1})
    assert "a_one" not in slurm.ask("sacctmgr", "-nP", "show", "qos", "format=name").splitlines()


def test_service_accounts_and_restricted_resources(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    waldur.site.add_shared_account(waldur.seed.project_uuids[0], "robot1")
    site = on_slurm()
    create(waldur, "open")
    closed = create(waldur, "closed")
    waldur.site.change("resources", closed, restrict_member_access=True)
    processed(site, {"done": 2})
    assert tree(slurm)["a_open"][2] == {"ffrost5", "ggran6", "robot1"}
    assert tree(slurm)["a_closed"][2] == frozenset()
