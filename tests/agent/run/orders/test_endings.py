# SPDX-License-Identifier: MIT
"""Terminations together with other orders on the real SLURM: no user loses a default account, and they share their
commands.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.core.actions import AddMember, ClusterAction, DeleteAccount
from agent.core.plans import Outcome
from agent.run import passes
from rig.slurm_cluster import SlurmCluster
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.orders.conftest import SiteFactory
from tests.agent.run.orders.test_lifecycle import create, defaults, processed, tree
from tests.one_mode import planned_orders

pytestmark = pytest.mark.every_slurm(one_of=10)

POLICIES = ["none", "individual", "common"]
MANY = 6


def terminate(waldur: SimulatedWaldur, resource: str) -> str:
    return waldur.orders.place_terminate(resource)


def users_with_a_bad_default(slurm: SlurmCluster) -> list[str]:
    """Users with associations whose default account is none of them."""
    members = {account: users for account, (_, _, users) in tree(slurm).items()}
    members["root"] = frozenset(defaults(slurm))
    return [user for user, home in defaults(slurm).items() if user not in members.get(home, ())]


@pytest.mark.parametrize("policy", POLICIES)
def test_who_leaves_a_default_account_and_joins_another_in_one_pass_defaults_to_the_new_one(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory, policy: str
) -> None:
    site = on_slurm(backend={"default_account_policy": policy})
    first = create(waldur, "first")
    processed(site, {"done": 1})
    terminate(waldur, first)
    create(waldur, "second")
    planned = planned_orders(site).actions
    assert not [a for a in planned if isinstance(a, DeleteAccount) and a.account.startswith("p_")]
    processed(site, {"done": 2})
    assert "a_first" not in tree(slurm)
    assert len(tree(slurm)["a_second"][2]) == 2
    assert users_with_a_bad_default(slurm) == []


def test_a_project_that_others_have_come_to_use_stays_and_its_last_order_is_done(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = on_slurm()
    first = create(waldur, "first")
    processed(site, {"done": 1})
    project = tree(slurm)["a_first"][0]
    terminate(waldur, first)
    apply = site.backend.apply

    def after_others(actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        slurm.ask("sacctmgr", "-i", "add", "account", "name=foreign", f"parent={project}")
        return apply(actions)

    monkeypatch.setattr(site.backend, "apply", after_others)
    processed(site, {"done": 1})
    assert "a_first" not in tree(slurm)
    assert tree(slurm)["foreign"][0] == project


def test_no_order_counts_on_one_that_is_not_approved(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    """Both accounts of the users end, but the second order has moved on in Waldur: they default to what stays."""
    site = on_slurm()
    resources = []
    for name in ("first", "second"):
        resources.append(create(waldur, name))
        processed(site, {"done": 1})
    _, second = (terminate(waldur, resource) for resource in resources)
    refusal = '{"detail": "no"}'
    waldur.inject(
        Fault(method="POST", path=f"{second}/approve_by_provider", status=409, body=refusal, times=1)
    )
    processed(site, {"done": 1, "waiting": 1})
    assert "a_first" not in tree(slurm)
    assert users_with_a_bad_default(slurm) == []
    processed(site, {"done": 1})
    assert "a_second" not in tree(slurm)


@pytest.mark.by_commands
def test_terminations_of_a_project_share_their_commands(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    """Whatever the number of accounts and members: one write each to block, for members (twice), accounts, project."""
    site = on_slurm()
    resources = [create(waldur, f"n{number}") for number in range(MANY)]
    processed(site, {"done": MANY})
    for resource in resources:
        terminate(waldur, resource)
    report = passes.process_orders(site)
    assert report.counted() == {"done": MANY}
    assert report.effort.commands["write"] <= 5
    assert [name[:2] for name in tree(slurm)] == ["c_"]


def test_what_the_read_back_refuses_is_not_done(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone makes an account below ours between our plan and our write."""
    site = on_slurm()
    first = create(waldur, "first")
    processed(site, {"done": 1})
    order = terminate(waldur, first)
    apply = site.backend.apply

    def late(actions: list[AddMember]) -> object:
        slurm.ask("sacctmgr", "-i", "add", "account", "name=child", "parent=a_first", "cluster=test")
        return apply(actions)

    monkeypatch.setattr(site.backend, "apply", late)
    processed(site, {"retry": 1})
    assert "a_first" in tree(slurm)
    assert waldur.order(order).state.value == "executing"


def test_a_host_that_cannot_write_reports_nothing_to_waldur(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    """Nothing was provisioned, so the order is still pending, with the reason in the log."""
    site = on_slurm()
    lock = site.state_dir / "locks"
    site.state_dir.mkdir(exist_ok=True)
    lock.write_text("a file where the folder of the locks should be")
    resource = create(waldur, "first")
    report = passes.process_orders(site)
    assert "cannot open the write lock" in report.orders[0].message
    assert [order.state.value for order in waldur.orders.all()] == ["pending-provider"]
    assert waldur.resource(resource).backend_id == ""
    lock.unlink()
    processed(site, {"done": 1})
