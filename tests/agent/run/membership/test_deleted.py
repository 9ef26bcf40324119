# SPDX-License-Identifier: MIT
"""Whom Waldur has as deleted at the offering, and who is of a project's team there still."""

from __future__ import annotations

import pytest

from agent.core.actions import RemoveMember
from tests.agent.run.membership.conftest import WorldFactory
from tests.agent.run.membership.leavers import S, leaver, state_of, state_of_login, steps_of
from tests.world import World


@pytest.mark.parametrize("name", ["", "nina"])
def test_who_is_deleted_in_waldur_and_in_the_team_joins_nothing_and_hinders_no_other(
    world: World, name: str
) -> None:
    """By whatever brings members: passes over everything, one project or one resource, and orders."""
    world.allocate("one")
    world.converge()
    (resource,) = world.waldur.site.resources()
    world.waldur.people.add_member(resource.project_uuid, "nina", account=name)
    world.waldur.people.set_account("nina", name, state=S.DELETED)
    leaving, *_ = sorted(world.members("a_one"))
    world.leave(leaving)
    world.join("newcomer")
    world.waldur.requests.reset()
    for scope in ({"project": resource.project_uuid}, {"resource": resource.uuid}, {}):
        report = world.sync(**scope)
        assert (report.error, report.failed, report.held) == (None, False, ()), report.as_json()
        assert "newcomer" in world.members("a_one")
        assert {leaving, "nina"}.isdisjoint(world.members("a_one")), scope
    world.place("two")
    world.processed(done=1)
    assert "nina" not in world.members("a_two")
    world.converge()
    assert (steps_of(world), state_of_login(world, "nina")) == ([], S.DELETED)


def test_who_is_deleted_in_waldur_leaves_by_a_pass_over_everything(world: World) -> None:
    """An event about a project or resource takes no access for the state of an account."""
    name = leaver(world, state=S.DELETED)
    (resource,) = world.waldur.site.resources()
    for scope in ({"project": resource.project_uuid}, {"resource": resource.uuid}):
        world.sync(**scope)
        assert name in world.members("a_one")
    world.backend.refuses = lambda action: isinstance(action, RemoveMember) and action.user == name
    for _ in range(2):
        world.sync()
        assert (steps_of(world), state_of(world, name)) == ([], "Deleted")
    world.backend.refuses = lambda _: False
    world.sync()
    assert name not in world.members("a_one")


def test_many_who_are_deleted_in_waldur_at_once_wait_for_a_person(make_world: WorldFactory) -> None:
    """As after a mistake there."""
    world = make_world()
    world.allocate("one")
    world.converge()
    team = set(world.members("a_one"))
    for name in team:
        world.waldur.people.set_account(world.person(name), name, state=S.DELETED)
    assert len(world.sync().held) == 1
    assert world.members("a_one") == team
