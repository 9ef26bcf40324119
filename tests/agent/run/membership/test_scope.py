# SPDX-License-Identifier: MIT
"""A pass over one resource or project, as an event asks for it: that and nothing else."""

from __future__ import annotations

import pytest

from agent.core.scope import PassScope
from agent.run import passes
from agent.run.results import Result
from agent.waldur.resources import LIST_ALL_FROM
from simulator.server.faults import Fault
from tests.agent.run.membership.conftest import WorldFactory
from tests.world import World

TEAM = {"ffrost5", "ggran6", "hholt7"}
OTHER_TEAM = {"iilves8", "jjansen9", "akask10"}


@pytest.fixture
def changed(world: World) -> dict[str, str]:
    """Three allocations in two projects, in each of which one member came and one went; uuids by name."""
    made = {
        "one": world.allocate("one"),
        "two": world.allocate("two"),
        "three": world.allocate("three", project=1),
    }
    world.converge()
    for project, leaver in ((0, "ggran6"), (1, "jjansen9")):
        world.join(f"new{project}", project=project)
        world.leave(leaver, project=project)
    return made


def test_one_resource(world: World, changed: dict[str, str]) -> None:
    world.sync(resource=changed["one"])
    assert world.members("a_one") == TEAM - {"ggran6"} | {"new0"}
    assert world.members("a_two") == TEAM
    assert world.members("a_three") == OTHER_TEAM


def test_one_project(world: World, changed: dict[str, str]) -> None:
    world.sync(project=world.waldur.seed.project_uuids[0])
    assert world.members("a_one") == world.members("a_two") == TEAM - {"ggran6"} | {"new0"}
    assert world.members("a_three") == OTHER_TEAM


def test_the_team_is_asked_for_and_no_listing_of_everybody_is_read(
    world: World, changed: dict[str, str]
) -> None:
    world.waldur.requests.reset()
    world.sync(resource=changed["one"])
    asked = world.waldur.request_counts()
    # Once for the plan, and once more before anybody leaves.
    assert asked["GET marketplace-provider-resources/{uuid}/team/"] == 2
    assert "GET marketplace-service-providers/{uuid}/project_permissions/" not in asked
    assert world.waldur.requests.count("GET marketplace-provider-resources/") <= 2


@pytest.mark.parametrize("number", [2, 30])
def test_what_fails_of_several_projects_does_not_hold_up_the_others(
    world: World, changed: dict[str, str], number: int
) -> None:
    """One that Waldur does not know, or does not let us read the team of; read one by one, and from listings."""
    one, other = world.waldur.seed.project_uuids[:2]
    unknown = frozenset(f"{each:032x}" for each in range(number))
    is_listed = number > LIST_ALL_FROM
    path = "project_permissions" if is_listed else f"{changed['three']}/team/"
    world.waldur.inject(Fault(path=path, status=403 if is_listed else 429, times=None))
    if is_listed:
        world.waldur.inject(Fault(path=f"{changed['three']}/team/", status=429, times=None))
    report = passes.sync_members(world.site, scope=PassScope(projects=unknown | {one, other}))
    assert world.members("a_one") == world.members("a_two") == TEAM - {"ggran6"} | {"new0"}
    assert world.members("a_three") == OTHER_TEAM
    assert [each.resource_uuid for each in report.resources if each.result is Result.RETRY] == [
        changed["three"]
    ]
    assert report.effort.commands["read"] <= 3


def test_a_project_whose_resources_are_not_listed_is_tried_again(
    world: World, changed: dict[str, str]
) -> None:
    scope = PassScope(projects=frozenset(world.waldur.seed.project_uuids[:2]))
    world.waldur.inject(Fault(path=r"marketplace-provider-resources/(\?|$)", status=502))
    report = passes.sync_members(world.site, scope=scope)
    (failed,) = (each.resource_uuid for each in report.resources if each.result is Result.RETRY)
    assert failed in scope.projects
    assert report.counted()["done"] > 0


@pytest.mark.parametrize("state", ["Creating", "Updating", "Terminated"])
def test_a_resource_that_is_not_ready_is_left_alone(
    world: World, changed: dict[str, str], state: str
) -> None:
    world.change(changed["one"], state=state)
    report = world.sync(resource=changed["one"])
    assert (report.error, report.outcomes) == (None, [])
    assert world.members("a_one") == TEAM


def test_a_pass_over_a_part_says_nothing_of_what_is_held_elsewhere(make_world: WorldFactory) -> None:
    world = make_world(policy={"max_removed_members": 1})
    one, two = world.allocate("one"), world.allocate("two", project=1)
    world.converge()
    for user in ("ffrost5", "ggran6"):
        world.leave(user)
    world.sync(resource=two)
    assert not world.sync(resource=two).held
    assert len(world.sync(resource=one).held) == 1
    world.sync(resource=two)
    assert len(world.sync().held) == 1
    assert world.members("a_one") == TEAM
