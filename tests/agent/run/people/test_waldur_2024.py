# SPDX-License-Identifier: MIT
"""Usernames at a server of October 2024, which blanks them all when the offering's options are edited."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.run.people import usernames
from agent.state.store import NAME
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import World, approve

SCENARIO = Scenario(projects_per_customer=1, members_per_project=7, unnamed_members=7)


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur("2024", scenario=SCENARIO) as server:
        yield server


@pytest.fixture
def world(waldur: SimulatedWaldur, tmp_path: Path) -> World:
    """Seven people with names of ours, in one account."""
    made = World(waldur, tmp_path, username_management_backend="template")
    made.allocate("one")
    made.converge()
    return made


def names(world: World) -> dict[str, str]:
    return {row.user_uuid: row.username for row in world.waldur.store.offering_users}


def edit_options(world: World) -> None:
    uuid = world.waldur.seed.offering_uuid
    options = world.waldur.store.offerings[uuid].plugin_options
    world.waldur.site.change("offerings", uuid, plugin_options={**options, "edited": True})


def forget_everything(world: World) -> None:
    for path in world.site.state_dir.glob(f"{NAME}*"):
        path.unlink()


def test_names_are_made_with_the_option_where_2024_keeps_it(world: World) -> None:
    assert world.waldur.store.offerings[world.waldur.seed.offering_uuid].secret_options == {
        "service_provider_can_create_offering_user": True
    }
    assert len(set(names(world).values())) == 7
    assert world.members("a_one") == set(names(world).values())


def test_people_whose_names_waldur_lost_get_them_again(world: World) -> None:
    before, inside = names(world), world.members("a_one")
    edit_options(world)
    assert set(names(world).values()) == {""}
    world.converge()
    assert names(world) == before
    assert world.members("a_one") == inside


def test_no_other_user_gets_a_name_that_waldur_lost(world: World) -> None:
    """Another person of the same name comes first."""
    first = next(iter(world.waldur.store.offering_users))
    person = world.waldur.store.users[first.user_uuid]
    had = first.username
    edit_options(world)
    project = world.waldur.seed.project_uuids[0]
    world.waldur.people.add_user("twin", full_name=person.full_name)
    world.waldur.people.add_member(project, "twin")
    world.sync()
    twin = world.waldur.people.account("twin")
    assert twin is not None
    assert twin.username not in ("", had)
    assert names(world)[person.uuid] == had


def test_new_names_for_all_wait_for_a_person_where_nothing_is_remembered(world: World) -> None:
    inside = world.members("a_one")
    edit_options(world)
    forget_everything(world)
    report = world.sync()
    assert [(len(held.actions), held.reason[:40]) for held in report.held] == [
        (7, "7 people would get new usernames, and 7 ")
    ]
    assert set(names(world).values()) == {""}
    assert world.members("a_one") == inside
    assert world.sync().held[0].id == report.held[0].id
    approve(world.site, usernames.KEY, report.held[0].id)
    world.sync()
    assert "" not in names(world).values()


def test_a_name_that_was_given_in_waldur_since_stays(world: World) -> None:
    edit_options(world)
    row = next(iter(world.waldur.store.offering_users))
    world.waldur.people.set_account(world.waldur.store.users[row.user_uuid].username, "chosen")
    world.sync()
    assert names(world)[row.user_uuid] == "chosen"
