# SPDX-License-Identifier: MIT
"""What waits for a person, and what waits for the next pass."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agent.config.model import Mode
from agent.core.errors import PassUnfinished
from agent.state.held_plans import HeldPlans
from simulator.world.records import ResourceState
from tests.agent.run.membership.conftest import WorldFactory
from tests.world import World, approve

pytestmark = pytest.mark.safety

MEMBERS = 3


def emptied(world: World) -> str:
    """An erred resource whose team is gone."""
    resource = world.allocate("one")
    world.converge()
    for username in sorted(world.members("a_one")):
        world.leave(username)
    world.change(resource, state=ResourceState.ERRED)
    return resource


def test_an_emptied_team_waits_for_approval_and_its_resource_is_not_called_well(world: World) -> None:
    resource = emptied(world)
    report = world.sync()
    (plan,) = report.held
    assert [r.result.value for r in report.resources] == ["waiting"]
    assert len(world.members("a_one")) == MEMBERS
    assert world.resource(resource).state is ResourceState.ERRED
    again = world.sync()
    assert [held.id for held in again.held] == [plan.id]
    approve(world.site, Mode.MEMBERSHIP_SYNC, plan.id)
    world.sync()
    assert world.members("a_one") == set()
    assert world.resource(resource).state is ResourceState.OK


def test_an_approval_survives_one_more_leaver(world: World) -> None:
    """A user who does not belong there was added by hand: that is judged by itself."""
    emptied(world)
    (plan,) = world.sync().held
    approve(world.site, Mode.MEMBERSHIP_SYNC, plan.id)
    held = HeldPlans(world.site.state_dir, world.site.offering, Mode.MEMBERSHIP_SYNC)
    world.stray("stranger", "a_one")
    report = world.sync()
    assert (report.held, world.members("a_one")) == ((), set())
    world.sync()
    assert held.approvals.open() == [], "it was for one act"


def test_what_is_held_stays_held_while_others_join(world: World) -> None:
    """Four of four leave and four join: half of the members then, and all of those who were in."""
    emptied(world)
    for number in range(MEMBERS):
        world.join(f"new{number}")
    (plan,) = world.sync().held
    assert len(world.members("a_one")) == 2 * MEMBERS
    (again,) = world.sync().held
    assert (again.id, len(world.members("a_one"))) == (plan.id, 2 * MEMBERS)
    # Also where nothing of it is remembered: who joined today was not in before.
    HeldPlans(world.site.state_dir, world.site.offering, Mode.MEMBERSHIP_SYNC).drop(plan.id)
    (again,) = world.sync().held
    assert again.reason.startswith(f"{MEMBERS} of the {MEMBERS} members of a_one would be removed at once")


def test_an_approval_that_has_expired_releases_nothing(world: World) -> None:
    emptied(world)
    (plan,) = world.sync().held
    held = HeldPlans(world.site.state_dir, world.site.offering, Mode.MEMBERSHIP_SYNC)
    held.approvals.approve(plan.id, expires=datetime.now(UTC) - timedelta(seconds=1), by="test")
    assert [held.id for held in world.sync().held] == [plan.id]
    assert len(world.members("a_one")) == MEMBERS


def test_a_pass_without_time_begins_nothing_and_the_next_one_goes_on(world: World) -> None:
    world.allocate("one")
    world.converge()
    world.join("newcomer")
    late = world.sync(seconds=-1)
    assert isinstance(late.retryable_error, PassUnfinished)
    assert "newcomer" not in world.members("a_one")
    assert world.sync().retryable_error is None
    assert "newcomer" in world.members("a_one")


@pytest.mark.parametrize("rules", [{"mode": "observe"}, {"paused": True}], ids=["observe", "paused"])
def test_an_offering_that_may_not_act_changes_nothing_anywhere(
    make_world: WorldFactory, rules: dict[str, object]
) -> None:
    world = make_world()
    resource = world.allocate("one")
    idle = make_world(policy=rules)
    idle.backend.state = world.backend.state
    idle.join("newcomer")
    idle.change(resource, state=ResourceState.ERRED, last_sync=None)
    report = idle.sync()
    assert report.outcomes == []
    assert len(report.refused) == 1
    assert idle.members("a_one") == world.members("a_one")
    assert idle.resource(resource).state is ResourceState.ERRED


def test_what_is_held_waits_while_an_order_is_at_work_on_its_resource(world: World) -> None:
    """For days, perhaps: no pass plans anything for it then, and nothing is taken back by that."""
    resource = emptied(world)
    (plan,) = world.sync().held
    held = HeldPlans(world.site.state_dir, world.site.offering, Mode.MEMBERSHIP_SYNC)
    for state in (ResourceState.UPDATING, ResourceState.TERMINATING):
        world.change(resource, state=state)
        world.sync()
        assert [each.id for each in held.waiting()] == [plan.id]
    held.approvals.approve(plan.id, expires=datetime.now(UTC) + timedelta(hours=1), by="test")
    world.sync()
    assert [each.plan for each in held.approvals.open()] == [plan.id]
    world.change(resource, state=ResourceState.OK)
    world.sync()
    assert world.members("a_one") == set()


@pytest.mark.parametrize("by_event", [False, True], ids=["polls", "events"])
def test_who_comes_back_after_an_approval_and_leaves_again_is_another_act(
    world: World, by_event: bool
) -> None:
    resource = emptied(world)
    world.change(resource, state=ResourceState.OK)
    (plan,) = world.sync().held
    approve(world.site, Mode.MEMBERSHIP_SYNC, plan.id)
    which = resource if by_event else ""
    people = {name: world.person(name) for name in sorted(world.members("a_one"))}
    world.sync(resource=which)
    assert world.members("a_one") == set()
    for name, person in people.items():
        world.waldur.people.add_member(world.waldur.seed.project_uuids[0], person, account=name)
    world.sync(resource=which)
    for name in people:
        world.leave(name)
    report = world.sync(resource=which)
    assert (len(report.held), world.members("a_one")) == (1, people.keys())
