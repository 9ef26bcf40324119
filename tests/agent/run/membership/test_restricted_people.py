# SPDX-License-Identifier: MIT
"""Restricted people, and accounts without a person: who is not added, and who stays."""

from __future__ import annotations

import logging

import pytest

from agent.config.model import Mode
from agent.core.actions import RemoveMember
from agent.plan.membership import CLOSED
from agent.run.preview.previews import preview
from simulator.server.faults import Fault
from tests.agent.run.membership.conftest import WorldFactory
from tests.agent.run.membership.on_slurm import OTHER_TEAM, TEAM
from tests.world import World

pytestmark = pytest.mark.every_slurm(one_of=10)


def test_a_restricted_user_is_not_added_and_who_is_in_stays(world: World) -> None:
    world.allocate("one")
    world.converge()
    users = world.waldur.store.offering_users
    inside = next(row for row in users if row.username == "ggran6")
    world.waldur.site.change("offering_users", inside.uuid, is_restricted=True)
    world.join("newcomer")
    outside = next(row for row in users if row.username == "newcomer")
    world.waldur.site.change("offering_users", outside.uuid, is_restricted=True)
    world.in_step()
    assert world.members("a_one") == TEAM


def test_a_restricted_user_who_leaves_the_team_is_removed(world: World) -> None:
    world.allocate("one")
    world.converge()
    row = next(row for row in world.waldur.store.offering_users if row.username == "ggran6")
    world.waldur.site.change("offering_users", row.uuid, is_restricted=True)
    world.leave("ggran6")
    world.sync()
    assert world.members("a_one") == TEAM - {"ggran6"}
    world.in_step()


def test_restricted_access_puts_people_out_and_lets_service_accounts_stay(make_world: WorldFactory) -> None:
    world = make_world(policy={"max_removed_percent": 100})
    world.waldur.site.add_shared_account(world.waldur.seed.project_uuids[0], "robot")
    resource = world.allocate("one")
    world.converge()
    world.change(resource, restrict_member_access=True)
    leaving = [a for a in preview(world.site, Mode.MEMBERSHIP_SYNC).allowed if isinstance(a, RemoveMember)]
    assert {action.reason for action in leaving} == {CLOSED}
    assert "restrict_member_access" in CLOSED
    world.sync()
    assert world.members("a_one") == {"robot"}
    world.in_step()
    world.change(resource, restrict_member_access=False)
    world.sync()
    assert world.members("a_one") == TEAM | {"robot"}
    world.in_step()


@pytest.mark.parametrize("kind", ["project", "course"])
def test_an_account_without_a_person_comes_with_its_project_and_goes_when_it_is_closed(
    world: World, kind: str
) -> None:
    world.allocate("one")
    world.allocate("two", project=1)
    world.converge()
    uuid = world.waldur.site.add_shared_account(world.waldur.seed.project_uuids[0], "Robot1", kind=kind)
    world.sync()
    assert world.members("a_one") == TEAM | {"robot1"}
    assert world.members("a_two") == OTHER_TEAM
    world.in_step()
    world.in_step()
    world.waldur.site.change("accounts", uuid, state="Closed")
    world.sync()
    assert world.members("a_one") == TEAM
    world.in_step()


@pytest.mark.parametrize("state", ["Erred", "Pending", "Creating", "something new"])
def test_an_account_in_transition_is_neither_added_nor_removed(world: World, state: str) -> None:
    world.allocate("one")
    world.converge()
    project = world.waldur.seed.project_uuids[0]
    inside, outside = (world.waldur.site.add_shared_account(project, name) for name in ("in1", "out1"))
    world.waldur.site.change("accounts", outside, state=state)
    world.sync()
    world.waldur.site.change("accounts", inside, state=state)
    world.in_step()
    assert world.members("a_one") == TEAM | {"in1"}


def test_no_member_is_removed_while_service_accounts_cannot_be_read(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.allocate("one")
    world.converge()
    world.leave("ggran6")
    world.join("newcomer")
    world.waldur.inject(Fault(path="list_course_accounts", status=403, times=None))
    with caplog.at_level(logging.WARNING):
        world.sync()
    assert world.members("a_one") == TEAM | {"newcomer"}
    assert "1 who are not of its team stay for now" in caplog.text
    world.waldur.faults.clear()
    world.sync()
    assert world.members("a_one") == TEAM - {"ggran6"} | {"newcomer"}
