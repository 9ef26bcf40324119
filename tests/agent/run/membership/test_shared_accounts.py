# SPDX-License-Identifier: MIT
"""Two resources, or two offerings, that name one account: no member whom either wants is removed, and nothing flaps."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.run import site as sites
from rig.site import configuration, settings_of
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.membership.conftest import WorldFactory
from tests.world import World

TEAM, OTHER_TEAM = {"ffrost5", "ggran6", "hholt7"}, {"iilves8", "jjansen9", "akask10"}


@pytest.fixture
def world(make_world: WorldFactory) -> World:
    return make_world(policy={"max_removed_percent": 100})


@pytest.fixture
def twins(world: World) -> tuple[str, str]:
    """Two resources of two projects that name the account a_one."""
    first, second = world.allocate("one"), world.allocate("two", project=1)
    world.converge()
    world.change(second, backend_id="a_one")
    return first, second


def test_the_teams_of_both_resources_are_in_the_account(
    world: World, twins: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        world.sync()
        world.in_step()
    assert world.members("a_one") == TEAM | OTHER_TEAM
    assert caplog.text.count("account a_one is also named by resource") == 2, "once for each"


def test_who_is_in_neither_team_leaves(world: World, twins: tuple[str, str]) -> None:
    world.sync()
    world.leave("ggran6")
    world.stray("stranger", "a_one")
    world.sync()
    assert world.members("a_one") == TEAM - {"ggran6"} | OTHER_TEAM
    world.in_step()


def test_neither_place_nor_state_nor_limits_go_back_and_forth(make_world: WorldFactory) -> None:
    world = make_world(
        backend={"qos_default": "normal", "qos_paused": "stop"},
        limits_source="waldur",
        policy={"limit_cuts": "allow"},
    )
    first, second = world.allocate("one"), world.allocate("two", project=1)
    world.converge()
    world.change(first, paused=True, limits={"cpu": 1})
    world.change(second, backend_id="a_one", limits={"cpu": 5})
    before = world.cluster.accounts["a_one"]
    world.sync()
    world.in_step()
    assert world.cluster.accounts["a_one"] == before


@pytest.mark.parametrize("state", ["Creating", "Updating", "Terminating"])
def test_no_member_is_removed_for_whom_an_order_is_at_work(
    world: World, twins: tuple[str, str], state: str
) -> None:
    world.sync()
    world.change(twins[1], state=state)
    world.stray("stranger", "a_one")
    world.in_step()
    assert world.members("a_one") == TEAM | OTHER_TEAM | {"stranger"}


def test_no_member_is_removed_while_the_team_of_the_other_cannot_be_read(
    world: World, twins: tuple[str, str]
) -> None:
    world.waldur.inject(Fault(path="project_permissions", status=403, times=None))
    world.sync()
    world.waldur.inject(Fault(path=f"{twins[1]}/team/", status=500, times=None))
    world.stray("stranger", "a_one")
    report = world.sync()
    assert report.counted() == {"retry": 1}
    assert world.members("a_one") == TEAM | OTHER_TEAM | {"stranger"}
    world.waldur.faults.clear()
    world.sync()
    assert world.members("a_one") == TEAM | OTHER_TEAM


def test_a_pass_over_one_of_them_removes_no_member_of_the_other(world: World, twins: tuple[str, str]) -> None:
    world.sync()
    for resource in twins:
        assert world.changes(world.sync(resource=resource)) == []
    for project in world.waldur.seed.project_uuids:
        assert world.changes(world.sync(project=project)) == []
    assert world.members("a_one") == TEAM | OTHER_TEAM


def test_the_account_is_its_own_again_when_one_lets_go(world: World, twins: tuple[str, str]) -> None:
    world.sync()
    world.change(twins[1], backend_id="a_two")
    world.sync()
    assert (world.members("a_one"), world.members("a_two")) == (TEAM, OTHER_TEAM)
    world.in_step()


class TestTwoOfferings:
    """Each with a pass and a state of its own; only `state_dir` and the cluster are theirs together."""

    @pytest.fixture
    def other(self, world: World) -> World:
        """A second offering, seen by the same host; its only resource names the account of the first."""
        seed = world.waldur.seed
        with world.waldur.store.lock:
            offerings = world.waldur.store.offerings
            offerings.add(replace(offerings[seed.offering_uuid], uuid="f" * 32, slug="other"))
        other = object.__new__(World)
        other.__dict__.update(world.__dict__)
        names = {seed.offering_uuid: "First", "f" * 32: "Second"}
        first = replace(world.site, neighbours={"f" * 32: "Second"})
        client = type(first.client)(
            first.offering.access, user_agent="waldur-site-agent-test", offering_uuid="f" * 32, attempts=1
        )
        offering = replace(first.offering, uuid="f" * 32, name=names["f" * 32])
        other.site = replace(
            first, offering=offering, client=client, neighbours={seed.offering_uuid: "First"}
        )
        world.site = first
        return other

    def shared(self, world: World) -> None:
        """The second offering's resource names a_one, and its team is in it."""
        second = world.allocate("two", project=1)
        world.change(second, offering_uuid="f" * 32, backend_id="a_one")
        with world.waldur.store.lock:
            for row in list(world.waldur.store.offering_users):
                copy = replace(row, uuid=world.waldur.store.uuids.new(), offering_uuid="f" * 32)
                world.waldur.store.offering_users.add(copy)

    def test_neither_removes_the_others_members_from_the_first_pass_on(
        self, world: World, other: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.allocate("one")
        self.shared(world)
        for user in OTHER_TEAM:
            world.stray(user, "a_one")
        passes: list[Callable[[], object]] = [world.sync, other.sync] * 3
        for run in passes:
            run()
            assert world.members("a_one") == TEAM | OTHER_TEAM
        world.in_step()
        other.in_step()
        assert "offering Second on the same cluster has not recorded yet" in caplog.text
        assert "a_one is also named by offering Second" in caplog.text
        assert "a_one is also named by offering Test SLURM" in caplog.text

    @pytest.mark.parametrize("spelling", ["a_one", "A_one"])
    @pytest.mark.parametrize("reach", ["everything", "resource"])
    def test_agents_that_know_nothing_of_each_other_remove_no_member_of_the_other(
        self, world: World, other: World, tmp_path: Path, reach: str, spelling: str
    ) -> None:
        """Two configurations: no neighbours, and a state of their own."""
        world.site = replace(world.site, neighbours={})
        other.site = replace(other.site, neighbours={}, state_dir=tmp_path / "other")
        first = world.allocate("one")
        world.change(first, backend_id=spelling)
        self.shared(world)
        for user in OTHER_TEAM:
            world.stray(user, "a_one")
        for _ in range(2):
            world.sync(resource=first if reach == "resource" else "")
            if spelling == "a_one":  # Waldur compares names letter by letter
                other.sync()
            assert world.members("a_one") == TEAM | OTHER_TEAM
        world.in_step()

    def test_no_member_is_removed_while_waldur_does_not_say_who_else_names_the_account(
        self, world: World
    ) -> None:
        world.allocate("one")
        world.converge()
        world.leave("ggran6")
        world.waldur.inject(Fault(path="provider-resources/$", status=500, skip=1, times=None))
        world.sync()
        assert world.members("a_one") == TEAM
        world.waldur.faults.clear()
        world.sync()
        assert world.members("a_one") == TEAM - {"ggran6"}

    def test_an_offering_that_is_known_to_be_on_another_cluster_holds_no_removal_up(
        self, world: World, other: World
    ) -> None:
        world.site = replace(world.site, neighbours={}, elsewhere=frozenset({"f" * 32}))
        world.allocate("one")
        self.shared(world)
        world.stray("stranger", "a_one")
        world.sync()
        assert world.members("a_one") == TEAM

    def test_an_ended_resource_of_another_offering_holds_no_removal_up(
        self, world: World, other: World
    ) -> None:
        world.site = replace(world.site, neighbours={})
        world.allocate("one")
        self.shared(world)
        with world.waldur.store.lock:
            (second,) = (r for r in world.waldur.store.resources if r.offering_uuid == "f" * 32)
        world.change(second.uuid, state="Terminated")
        world.stray("stranger", "a_one")
        world.sync()
        assert world.members("a_one") == TEAM

    def test_an_offering_that_names_nothing_says_so_and_holds_no_removal_up(
        self, world: World, other: World
    ) -> None:
        world.allocate("one")
        world.sync()
        world.leave("ggran6")
        world.sync()
        assert world.members("a_one") == TEAM, "no member is removed before the other has been heard"
        other.sync()
        world.sync()
        assert world.members("a_one") == TEAM - {"ggran6"}
        world.in_step()


def test_neighbours_are_those_whose_members_are_kept_on_the_same_cluster(
    waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    path = configuration(waldur, tmp_path, membership_sync_backend="slurm")
    settings = settings_of(path)
    (one,) = settings.offerings
    alike = replace(one, uuid="2" * 32, name="alike")
    named = {**one.backend_settings, "cluster_name": "y"}
    one, alike = (replace(each, backend_settings=named) for each in (one, alike))
    alike = replace(alike, backend_settings={**named, "cluster_name": "Y"})
    elsewhere = replace(one, uuid="3" * 32, backend_settings={**one.backend_settings, "cluster_name": "x"})
    without = replace(one, uuid="4" * 32, backends={Mode.ORDER_PROCESS: "slurm"})
    settings = replace(settings, offerings=(one, alike, elsewhere, without))
    site = sites.connect(settings, one, Mode.MEMBERSHIP_SYNC)
    assert site.neighbours == {"2" * 32: "alike"}


def test_only_an_offering_that_names_another_cluster_or_has_another_kind_is_elsewhere(
    waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    settings = settings_of(configuration(waldur, tmp_path, membership_sync_backend="slurm"))
    (one,) = settings.offerings
    here, alike, away, unnamed = (
        replace(one, uuid=uuid * 32, backend_settings={**one.backend_settings, "cluster_name": name})
        for uuid, name in (("1", "x"), ("2", "x"), ("3", "y"), ("4", None))
    )
    settings = replace(settings, offerings=(here, alike, away, unnamed))
    assert sites.connect(settings, here, Mode.MEMBERSHIP_SYNC).elsewhere == {"3" * 32}
    assert sites.connect(settings, unnamed, Mode.MEMBERSHIP_SYNC).elsewhere == frozenset()
    other_kind = replace(unnamed, uuid="5" * 32, backends={Mode.MEMBERSHIP_SYNC: "moab"})
    kindless = replace(unnamed, uuid="6" * 32, backends={Mode.ORDER_PROCESS: "moab"})
    settings = replace(settings, offerings=(here, unnamed, other_kind, kindless))
    assert sites.connect(settings, here, Mode.MEMBERSHIP_SYNC).elsewhere == {"5" * 32}
    assert sites.connect(settings, unnamed, Mode.MEMBERSHIP_SYNC).elsewhere == {"5" * 32}
