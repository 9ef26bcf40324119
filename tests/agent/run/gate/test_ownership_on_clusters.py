# SPDX-License-Identifier: MIT
"""An account of other people that Waldur names, on the real SLURM and on MAM: whatever asks for it, it stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from agent.cli.main import run
from agent.config.model import Mode
from agent.core.errors import SiteAgentError
from agent.run import ownership, passes
from agent.run.periodic import mode as periodic_limits
from agent.run.site import Site
from agent.state.held_plans import HeldPlans, HeldRow
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState
from simulator.world.seed import Scenario
from tests.agent.run.membership.on_slurm import OnSlurm
from tests.backends.moab.site.world import World, scenario
from tests.world import approve

pytestmark = [pytest.mark.safety, pytest.mark.every_slurm(one_of=10)]

PEOPLE = [f"physicist{n}" for n in range(20)]
PERIODIC = {"periodic_limits": {"enabled": True}}


def questions(site: Site) -> list[HeldRow]:
    return HeldPlans(site.state_dir, site.offering, ownership.ADOPTION).planned()


def adopt(site: Site) -> None:
    (plan,) = questions(site)
    approve(site, ownership.ADOPTION, plan.id)


class PhysicsOnSlurm(OnSlurm):
    """With an account of other people, which Waldur names since its offering was looked at."""

    def named(self) -> str:
        """The uuid of the resource that has its name."""
        resource = self.allocate("one")
        self.converge()
        self.slurm.ask("sacctmgr", "-i", "add", "account", "name=physics", "GrpTRESMins=cpu=60000")
        self.slurm.ask("sacctmgr", "-i", "add", "user", f"name={','.join(PEOPLE)}", "account=physics")
        self.change(resource, backend_id="physics")
        return resource

    def physics(self) -> str:
        """All that SLURM has of it."""
        columns = "format=account,parentname,user,fairshare,grptresmins,qos,defaultqos,grpjobs,maxsubmit"
        return self.slurm.ask("sacctmgr", "-nP", "show", "assoc", "account=physics", columns, "WOPLimits")


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=2)) as server:
        yield server


@pytest.fixture
def on_slurm(slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path) -> PhysicsOnSlurm:
    return PhysicsOnSlurm(slurm, waldur, tmp_path, backend=PERIODIC, limits_source="waldur")


def by_a_poll(world: PhysicsOnSlurm, resource: str) -> None:
    world.change(resource, restrict_member_access=True)
    world.sync()


def by_an_event(world: PhysicsOnSlurm, resource: str) -> None:
    world.change(resource, paused=True)
    world.sync(resource=resource)


def by_an_order(world: PhysicsOnSlurm, resource: str) -> None:
    world.waldur.orders.place_terminate(resource)
    passes.process_orders(world.orders)


def by_an_operator(world: PhysicsOnSlurm, resource: str) -> None:
    world.change(resource, limits={"cpu": 1})
    for mode in (Mode.MEMBERSHIP_SYNC, Mode.ORDER_PROCESS):
        assert run(["run", mode.value, "--once", "-c", str(world.path)]) == 0


def by_a_script(world: PhysicsOnSlurm, resource: str) -> None:
    """Which asks nothing itself, as it only shows limits in Waldur."""
    world.change(resource, limits={"cpu": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["waldur_sync_resource_limits", "-c", str(world.path)])
        with pytest.raises(SystemExit) as ended:
            import_module("agent.cli.reference").sync_resource_limits()
    assert ended.value.code == 0
    world.sync()


def by_a_policy(world: PhysicsOnSlurm, resource: str) -> None:
    """Which gives the same question once the message is kept."""
    document = {
        "action": "apply_periodic_settings",
        "backend_id": "physics",
        "policy_uuid": world.waldur.site.add_policy(period=2),
        "resource_uuid": resource,
        "settings": {"fairshare": 3, "grp_tres_mins": {"cpu": 1}, "reset_raw_usage": True},
        "timestamp": "2026-01-01T00:10:02",
    }
    try:
        periodic_limits.run(world.orders, document)
    except SiteAgentError as error:
        periodic_limits.report_failure(world.orders.offering, world.orders.state_dir, document, error)
    passes.process_orders(world.orders)


WAYS: list[Callable[[PhysicsOnSlurm, str], None]] = [
    by_a_poll, by_an_event, by_an_order, by_an_operator, by_a_script, by_a_policy
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_on_slurm_it_stays_as_it_is(
    on_slurm: PhysicsOnSlurm, way: Callable[[PhysicsOnSlurm, str], None]
) -> None:
    resource = on_slurm.named()
    before = on_slurm.physics()
    assert before.count("\n") == len(PEOPLE) + 1
    way(on_slurm, resource)
    way(on_slurm, resource)
    assert on_slurm.physics() == before
    (plan,) = questions(on_slurm.site)
    (line,) = plan.lines.values()
    assert line.startswith("adopt account physics, below root, 20 members, limits cpu=")
    assert not any(order.state is OrderState.ERRED for order in on_slurm.waldur.orders.all())


def test_on_slurm_a_person_may_make_it_the_offerings(on_slurm: PhysicsOnSlurm) -> None:
    on_slurm.named()
    on_slurm.sync()
    adopt(on_slurm.site)
    report = on_slurm.sync()
    assert questions(on_slurm.site) == []
    assert on_slurm.assoc("parentname", "physics")[0] == "p_project-1-1"
    assert [len(plan.actions) > 0 for plan in report.held] == [True], (
        "20 who are no members may not leave at once"
    )
    assert on_slurm.members("physics") >= set(PEOPLE)


@pytest.mark.parametrize("terminates", [False, True], ids=["members pass", "terminate order"])
def test_on_mam_it_stays_as_it_is(tmp_path: Path, terminates: bool) -> None:
    with SimulatedWaldur(scenario=scenario(allocations_per_project=1)) as waldur:
        world = World(waldur, tmp_path)
        for uuid in waldur.seed.resource_uuids:
            waldur.site.change("resources", uuid, backend_id="")
        (resource,) = world.stand("a_one")
        world.sync()
        with world.mam.changed() as books:
            books.create_account("physics")
            for user in PEOPLE:
                books.add_user("physics", user)
            books.create_fund("physics")
            books.deposit(str(books.next_fund - 1), 500_00)
        waldur.site.change("resources", resource, backend_id="physics", restrict_member_access=True)
        before = dict(world.mam.books.accounts["physics"]), world.funds("physics")
        world.mam.watch()
        for _ in range(2):
            if terminates:
                waldur.orders.place_terminate(resource)
                assert passes.process_orders(world.site).error is None
            world.sync()
        assert (dict(world.mam.books.accounts["physics"]), world.funds("physics")) == before
        assert world.mam.writes() == []
        world.charge("physics", PEOPLE[0], "5")
        report = world.report()
        assert world.usage(resource) == {}, "no project is billed for what others have used"
        if not terminates:
            assert "whose account physics is has to be approved first" in report.resources[0].message
        (plan,) = questions(world.site)
        assert next(iter(plan.lines.values())).startswith("adopt account physics, ")
        adopt(world.site)
        world.sync()
        assert questions(world.site) == []
