# SPDX-License-Identifier: MIT
"""A member whose name Waldur does not report any more keeps access; who is known to be another person still leaves."""

from __future__ import annotations

import logging

import pytest

from tests.agent.run.membership.conftest import WorldFactory
from tests.world import World

TEAM = {"ffrost5", "ggran6", "hholt7"}


def blank(world: World, account: str, *, row_goes: bool) -> None:
    users = world.waldur.store.offering_users
    row = next(row for row in users if row.username == account)
    if row_goes:
        with world.waldur.store.lock:
            users.remove(row)
    else:
        world.waldur.site.change("offering_users", row.uuid, username="")


@pytest.mark.parametrize("row_goes", [False, True], ids=["blank", "no row"])
def test_who_has_lost_the_name_in_waldur_stays(
    world: World, caplog: pytest.LogCaptureFixture, row_goes: bool
) -> None:
    world.allocate("one")
    world.converge()
    blank(world, "ggran6", row_goes=row_goes)
    with caplog.at_level(logging.WARNING):
        assert world.changes(world.sync()) == []
    assert world.members("a_one") == TEAM
    assert "ggran6 (1 in all) stay for now: a member without a name may be meant" in caplog.text


def test_an_ordinary_leaver_goes_while_another_member_has_no_name(world: World) -> None:
    world.allocate("one")
    world.converge()
    blank(world, "ggran6", row_goes=False)
    world.leave("hholt7")
    world.stray("stranger", "a_one")
    world.sync()
    assert world.members("a_one") == {"ffrost5", "ggran6", "stranger"}


def test_all_leave_who_should_when_everybody_has_a_name_again(world: World) -> None:
    world.allocate("one")
    world.converge()
    world.join("nobody", account="")
    world.stray("stranger", "a_one")
    world.sync()
    assert world.members("a_one") == TEAM | {"stranger"}
    world.waldur.people.set_account("nobody", "somebody")
    world.sync()
    assert world.members("a_one") == TEAM | {"somebody"}
    world.in_step()


def test_a_closed_service_account_goes_while_a_member_has_no_name(world: World) -> None:
    uuid = world.waldur.site.add_shared_account(world.waldur.seed.project_uuids[0], "Robot1")
    world.allocate("one")
    world.join("nobody", account="")
    world.converge()
    world.waldur.site.change("accounts", uuid, state="Closed")
    world.sync()
    assert world.members("a_one") == TEAM


def test_restricted_access_waits_for_no_name(make_world: WorldFactory) -> None:
    world = make_world(policy={"max_removed_percent": 100})
    resource = world.allocate("one")
    world.converge()
    world.join("nobody", account="")
    world.change(resource, restrict_member_access=True)
    world.sync()
    assert world.members("a_one") == set()


@pytest.mark.parametrize("nameless", [0, 1], ids=["first", "second"])
def test_a_name_that_the_team_of_either_resource_lacks_counts_for_the_account_of_both(
    make_world: WorldFactory, nameless: int
) -> None:
    world = make_world(policy={"max_removed_percent": 100})
    world.allocate("one")
    second = world.allocate("two", project=1)
    world.change(second, backend_id="a_one")
    world.converge()
    everybody = world.members("a_one")
    world.join("nobody", project=nameless, account="")
    world.stray("stranger", "a_one")
    world.leave("ggran6")
    world.sync()
    assert world.members("a_one") == everybody - {"ggran6"} | {"stranger"}
