# SPDX-License-Identifier: MIT
"""Limits have one owner: what the cluster holds is reported to Waldur, or Waldur's limits are set on the cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent.run import passes
from rig.site import COMPONENTS
from simulator.server.faults import Fault
from simulator.world.records import OrderState
from tests.agent.run.membership.conftest import WorldFactory
from tests.world import World

MAPPED = {
    "node": {
        "measured_unit": "node-hours",
        "accounting_type": "limit",
        "label": "Nodes",
        "target_components": {"cpu": {"factor": 600}, "gres/gpu": {"factor": 120}},
    }
}
PREPAID = {**COMPONENTS, "cpu": {**COMPONENTS["cpu"], "accounting_type": "one"}}


def on_cluster(world: World) -> Mapping[str, int]:
    return dict(world.cluster.accounts["a_one"].limits)


def set_on_cluster(world: World, **limits: int) -> None:
    standing = world.cluster.accounts["a_one"]
    world.alter("a_one", limits={**standing.limits, **{k.replace("_", "/"): v for k, v in limits.items()}})


def use(world: World, **used: int) -> None:
    world.backend.state = replace(world.cluster, used={"a_one": used})


class TestClusterOwnsThem:
    def test_a_changed_limit_is_reported_in_waldurs_units(self, world: World) -> None:
        resource = world.allocate("one", cpu=10, mem=2)
        world.converge()
        set_on_cluster(world, cpu=1200)
        world.sync()
        assert world.resource(resource).limits == {"cpu": 20, "mem": 2}
        world.in_step()

    def test_components_that_the_agent_does_not_know_keep_what_they_have(self, world: World) -> None:
        resource = world.allocate("one", cpu=10, mem=2, gpu=7)
        world.converge()
        set_on_cluster(world, cpu=600 * 3)
        world.sync()
        assert world.resource(resource).limits == {"cpu": 30, "mem": 2, "gpu": 7}
        world.in_step()

    def test_a_limit_that_is_the_same_on_the_cluster_is_not_rounded(self, world: World) -> None:
        resource = world.allocate("one", cpu=1.5, mem=2)
        assert on_cluster(world)["cpu"] == 90
        world.converge()
        set_on_cluster(world, mem=3 * 61440)
        world.sync()
        assert world.resource(resource).limits == {"cpu": 1.5, "mem": 3}
        world.in_step()

    def test_what_the_cluster_has_no_limit_for_stays(self, world: World) -> None:
        resource = world.allocate("one", cpu=10, mem=2)
        world.converge()
        world.alter("a_one", limits={"cpu": 600})
        world.in_step()
        assert world.resource(resource).limits == {"cpu": 10, "mem": 2}

    def test_mapped_components_are_read_where_all_their_targets_agree(self, make_world: WorldFactory) -> None:
        world = make_world(backend_components=MAPPED)
        world.waldur.site.change("offerings", world.waldur.seed.offering_uuid, components=[])
        resource = world.allocate("one", node=4)
        assert on_cluster(world) == {"cpu": 2400, "gres/gpu": 480}
        world.converge()
        set_on_cluster(world, cpu=3000)
        world.in_step()
        assert world.resource(resource).limits == {"node": 4}
        set_on_cluster(world, gres_gpu=600)
        world.sync()
        assert world.resource(resource).limits == {"node": 5}
        world.in_step()

    def test_a_tres_that_two_components_share_is_reported_for_neither(self, make_world: WorldFactory) -> None:
        world = make_world(backend_components={**COMPONENTS, **MAPPED})
        resource = world.allocate("one", node=4, cpu=1, mem=2)
        assert on_cluster(world)["cpu"] == 2460
        world.converge()
        set_on_cluster(world, cpu=3000, gres_gpu=600)
        world.in_step()
        assert world.resource(resource).limits == {"node": 4, "cpu": 1, "mem": 2}

    def test_nothing_is_set_on_the_cluster(self, world: World) -> None:
        resource = world.allocate("one", cpu=10, mem=2)
        world.converge()
        world.change(resource, limits={"cpu": 99, "mem": 2})
        world.sync()
        assert on_cluster(world) == {"cpu": 600, "mem": 2 * 61440}
        assert world.resource(resource).limits == {"cpu": 10, "mem": 2}


class TestWaldurOwnsThem:
    @pytest.fixture
    def world(self, make_world: WorldFactory) -> World:
        return make_world(limits_source="waldur")

    def test_a_changed_limit_is_set_on_the_cluster(self, world: World) -> None:
        resource = world.allocate("one", cpu=10, mem=2)
        world.converge()
        world.change(resource, limits={"cpu": 20, "mem": 2, "gpu": 1})
        world.sync()
        assert on_cluster(world) == {"cpu": 1200, "mem": 2 * 61440}
        assert world.resource(resource).limits == {"cpu": 20, "mem": 2, "gpu": 1}
        world.in_step()

    def test_a_change_on_the_cluster_is_put_right(self, world: World) -> None:
        resource = world.allocate("one", cpu=1.5, mem=2)
        world.converge()
        set_on_cluster(world, cpu=1)
        world.sync()
        assert on_cluster(world)["cpu"] == 90
        assert world.resource(resource).limits == {"cpu": 1.5, "mem": 2}
        world.in_step()

    def test_a_cut_below_what_is_used_is_held_and_one_above_it_is_made(self, world: World) -> None:
        resource = world.allocate("one", cpu=10, mem=2)
        world.converge()
        use(world, cpu=400)
        world.change(resource, limits={"cpu": 5, "mem": 2})
        report = world.sync()
        assert on_cluster(world)["cpu"] == 600
        assert [plan.scope for plan in report.held] == ["account a_one"]
        assert "400 are used" in report.held[0].reason
        world.change(resource, limits={"cpu": 8, "mem": 2})
        world.sync()
        assert on_cluster(world)["cpu"] == 480
        world.in_step()

    def test_a_limit_that_is_no_number_is_left_as_it_is_and_the_others_wait_with_it(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        resource = world.allocate("one", cpu=10, mem=2)
        world.converge()
        world.change(resource, limits={"cpu": "many", "mem": 3})
        world.in_step()
        assert on_cluster(world) == {"cpu": 600, "mem": 2 * 61440}
        assert "its limits are left as they are: limit of cpu is 'many'" in caplog.text


@pytest.mark.parametrize("source", ["cluster", "waldur"])
class TestLimitsAreNotCopied:
    def drifted(self, world: World, **limits: float) -> str:
        """A resource whose limits differ on both sides; its uuid."""
        resource = world.allocate("one", **limits)
        world.converge()
        set_on_cluster(world, cpu=1200)
        return resource

    def left_alone(self, world: World, resource: str, limits: Mapping[str, Any]) -> None:
        world.sync()
        assert on_cluster(world)["cpu"] == 1200
        assert world.resource(resource).limits == limits

    def test_prepaid_components(self, make_world: WorldFactory, source: str) -> None:
        world = make_world(limits_source=source, backend_components=PREPAID)
        self.left_alone(world, self.drifted(world, cpu=10, mem=2), {"cpu": 10, "mem": 2})
        world.in_step()

    def test_prepaid_components_follow_the_end_of_the_resource(
        self, make_world: WorldFactory, source: str
    ) -> None:
        """A renewal that came without an order: an operator has moved the end."""
        world = make_world(limits_source=source, backend_components=PREPAID)
        resource = self.drifted(world, cpu=10, mem=2)
        made = world.resource(resource).created.date()
        use(world, cpu=600)
        for years in (1, 2, 1):
            world.change(resource, end_date=made.replace(year=made.year + years, day=min(made.day, 28)))
            world.sync()
            assert on_cluster(world)["cpu"] == 600 * 12 * years
            assert world.resource(resource).limits == {"cpu": 10, "mem": 2}
            world.in_step()

    def test_limits_that_a_periodic_policy_writes(self, make_world: WorldFactory, source: str) -> None:
        world = make_world(limits_source=source, backend={"periodic_limits": {"enabled": True}})
        self.left_alone(world, self.drifted(world, cpu=10, mem=2), {"cpu": 10, "mem": 2})
        world.in_step()

    def test_resources_with_an_order_under_way(self, make_world: WorldFactory, source: str) -> None:
        """Limits of its own are on their way, whichever side is read first."""
        world = make_world(limits_source=source)
        resource = self.drifted(world, cpu=10, mem=2)
        order = world.waldur.orders.place_update(resource, {"cpu": 5, "mem": 2})
        world.change(resource, state="OK")
        self.left_alone(world, resource, {"cpu": 10, "mem": 2})
        world.waldur.site.change("orders", order, state="canceled")
        use(world, cpu=0)
        world.sync()
        assert (on_cluster(world)["cpu"], world.resource(resource).limits["cpu"]) in [(600, 10), (1200, 20)]
        world.in_step()


def test_a_spending_limit_lowers_a_limit_that_waldur_owns(
    make_world: WorldFactory, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(limits_source="waldur")
    resource = world.allocate("one", cpu=10, mem=2)
    world.converge()
    use(world, cpu=0, mem=0)
    world.change(resource, spending_limits={"cpu": {"total": "4", "month": 1}, "mem": {"total": 5}})
    world.sync()
    assert on_cluster(world) == {"cpu": 240, "mem": 2 * 61440}
    assert world.resource(resource).limits == {"cpu": 10, "mem": 2}
    assert "the spending limit of cpu (month) is not kept on the cluster" in caplog.text
    world.in_step()
    # An order goes no higher.
    order = world.waldur.orders.place_update(resource, {"cpu": 20, "mem": 3})
    passes.process_orders(world.site)
    assert world.waldur.order(order).state is OrderState.DONE
    assert on_cluster(world) == {"cpu": 240, "mem": 3 * 61440}
    world.change(resource, spending_limits={})
    world.sync()
    assert on_cluster(world)["cpu"] == 1200
    world.in_step()


class TestLimitsOfSingleUsers:
    LIMITED = ("a_one", "ggran6")

    def test_they_are_set_changed_and_lifted(self, world: World) -> None:
        resource = world.allocate("one")
        world.converge()
        person = world.person("ggran6")
        row = world.waldur.site.add_user_limit(resource, person, component_type="cpu", limit=2)
        world.sync()
        assert world.cluster.user_limits == {self.LIMITED: {"cpu": 120}}
        world.in_step()
        world.waldur.site.change("user_limits", row, limit="3.7")
        world.sync()
        assert world.cluster.user_limits == {self.LIMITED: {"cpu": 180}}
        world.in_step()
        world.waldur.store.user_limits.remove(world.waldur.store.user_limits[row])
        world.sync()
        assert world.cluster.user_limits == {}
        world.in_step()

    def test_who_joins_has_the_limit_at_once(self, world: World) -> None:
        resource = world.allocate("one")
        world.converge()
        world.join("newcomer")
        world.waldur.site.add_user_limit(resource, "newcomer", component_type="mem", limit=1)
        world.sync()
        assert world.cluster.user_limits == {("a_one", "newcomer"): {"mem": 61440}}
        world.in_step()

    def test_a_limit_of_tres_that_are_not_ours_stays(self, world: World) -> None:
        world.allocate("one")
        world.converge()
        world.backend.state = replace(world.cluster, user_limits={self.LIMITED: {"cpu": 5, "gres/gpu": 9}})
        world.sync()
        assert world.cluster.user_limits == {self.LIMITED: {"gres/gpu": 9}}
        world.in_step()

    def test_nothing_is_lifted_where_the_owner_of_a_limit_is_out_of_sight(self, world: World) -> None:
        """Users who have not consented are in no listing, and their limits are."""
        resource = world.allocate("one")
        world.converge()
        world.waldur.site.add_user_limit(resource, world.person("ggran6"), component_type="cpu", limit=2)
        world.sync()
        offering = world.waldur.seed.offering_uuid
        world.waldur.site.change("offerings", offering, enforces_consent=True)
        for row in world.waldur.store.offering_users:
            world.waldur.site.change("offering_users", row.uuid, has_consent=row.username != "ggran6")
        world.in_step()
        assert world.cluster.user_limits == {self.LIMITED: {"cpu": 120}}
        assert "ggran6" in world.members("a_one")

    def test_a_resource_of_restricted_access_keeps_its_limits(self, make_world: WorldFactory) -> None:
        world = make_world(policy={"max_removed_percent": 100})
        resource = world.allocate("one")
        world.converge()
        world.waldur.site.add_shared_account(world.waldur.seed.project_uuids[0], "robot")
        world.sync()
        world.backend.state = replace(world.cluster, user_limits={("a_one", "robot"): {"cpu": 5}})
        world.change(resource, restrict_member_access=True)
        world.sync()
        assert world.cluster.user_limits[("a_one", "robot")] == {"cpu": 5}
        world.in_step()


ODD = ([], {}, {"a": [1]}, "\ud800", "NaN", "1e1000000", 10**300, True)


@pytest.mark.parametrize("source", ["cluster", "waldur"])
def test_an_odd_limit_of_one_resource_keeps_no_member_out_of_the_others(
    make_world: WorldFactory, source: str
) -> None:
    """Whoever may write a resource's limits in Waldur stops no pass with them."""
    world = make_world(limits_source=source)
    odd, good = world.allocate("odd"), world.allocate("good", project=1)
    world.converge()
    for number, value in enumerate(ODD):
        world.change(odd, limits={"cpu": 20, "zz": value, "mem": value})
        world.change(good, limits={"cpu": 20 + number, "mem": 2})
        world.join(f"user{number}", project=1)
        report = world.sync()
        assert report.error is None, value
        assert f"user{number}" in world.members("a_good")


@pytest.mark.parametrize("value", ["1e1000000", "-1", "NaN", "9" * 30, "many"])
def test_an_odd_limit_of_one_user_is_skipped_at_once(
    world: World, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`1e1000000` as a whole number took a minute and a half, with every pass."""
    uuid = world.allocate("one")
    world.converge()
    user, *_ = sorted(world.members("a_one"))
    world.waldur.site.add_user_limit(uuid, world.person(user), component_type="cpu", limit=1)
    row = next(iter(world.waldur.store.user_limits))
    page = [
        {
            "uuid": row.uuid,
            "resource": f"/{uuid}/",
            "user": f"/{row.offering_user_uuid}/",
            "component_type": "cpu",
            "limit": value,
        }
    ]
    world.waldur.inject(
        Fault(
            path="component-user-usage-limits",
            status=200,
            body=json.dumps(page),
            content_type="application/json",
        )
    )
    report = world.sync()
    assert report.error is None
    assert world.cluster.user_limits == {}
    assert f"limits of {user} are left as they are: limit of cpu is" in caplog.text
