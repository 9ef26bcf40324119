# SPDX-License-Identifier: MIT
"""A listing of service or course accounts that lacks: an older server, or a gateway that mislays it for a while."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agent.state import forget, listings
from agent.state.listings import Listing
from agent.waldur.features import Features
from simulator.server.faults import Fault
from tests.world import World

TEAM = {"ffrost5", "ggran6", "hholt7"}


def other_process(world: World) -> None:
    """What a worker remembers is gone; what is in `state_dir` stays."""
    world.site.client.features = Features()


def an_hour_later(world: World) -> None:
    offering, url = world.site.offering.uuid, world.site.client.url
    before = listings.known(world.site.state_dir, offering, url)
    after = {
        name: Listing(each.lacking_since - timedelta(seconds=3601) if each.lacking_since else None)
        for name, each in before.items()
    }
    assert listings.write(world.site.state_dir, offering, url, after)


@pytest.mark.parametrize("status", [404, 405])
@pytest.mark.parametrize("listing", ["list_project_service_accounts", "list_course_accounts"])
def test_what_another_process_has_seen_is_not_lacking(world: World, listing: str, status: int) -> None:
    """A gateway mislays the listing for longer than an hour."""
    kind = "course" if "course" in listing else "project"
    world.waldur.site.add_shared_account(world.waldur.seed.project_uuids[0], "robot", kind=kind)
    world.allocate("one")
    world.converge()
    world.waldur.inject(Fault(path=listing, status=status, times=None))
    for _ in range(3):
        other_process(world)
        assert world.changes(world.sync()) == []
        an_hour_later(world)
    assert world.members("a_one") == TEAM | {"robot"}
    world.waldur.faults.clear()
    world.in_step()


def test_a_listing_that_lacks_in_the_first_pass_of_all_removes_no_member(world: World) -> None:
    """The site's state is fresh, and the service account was put there by an agent before this one."""
    world.waldur.site.add_shared_account(world.waldur.seed.project_uuids[0], "robot")
    world.allocate("one")
    world.stray("robot", "a_one")
    fault = Fault(path="list_project_service_accounts", status=404, times=None)
    world.waldur.inject(fault)
    for _ in range(3):
        other_process(world)
        world.sync()
        assert "robot" in world.members("a_one")
    world.waldur.faults.clear()
    world.sync()
    an_hour_later(world)
    world.waldur.inject(fault)
    other_process(world)
    world.sync()
    assert "robot" in world.members("a_one"), "it was there in between"


def test_a_server_without_service_accounts_does_without_them_after_an_hour(world: World) -> None:
    world.waldur.inject(Fault(path="list_(project_service|course)_accounts", status=404, times=None))
    world.place("one")
    world.processed(done=1)
    world.converge()
    world.leave("ggran6")
    world.sync()
    assert world.members("a_one") == TEAM, "it may be a gateway"
    an_hour_later(world)
    world.sync()
    assert world.members("a_one") == TEAM - {"ggran6"}
    world.leave("hholt7")
    other_process(world)
    world.sync()
    assert world.members("a_one") == TEAM - {"ggran6", "hholt7"}, "it is known now"


@pytest.mark.parametrize("why", ["forgotten", "of another server"])
def test_what_is_not_known_of_the_listings_starts_the_hour_again(world: World, why: str) -> None:
    world.waldur.inject(Fault(path="list_(project_service|course)_accounts", status=404, times=None))
    world.place("one")
    world.processed(done=1)
    world.converge()
    an_hour_later(world)
    offering = world.site.offering.uuid
    if why == "forgotten":
        assert forget.forget(world.site.state_dir, "listings", offering) >= 2
    else:
        known = listings.known(world.site.state_dir, offering, world.site.client.url)
        listings.write(world.site.state_dir, offering, "https://another.example/", known)
    world.leave("ggran6")
    world.sync()
    assert world.members("a_one") == TEAM
    an_hour_later(world)
    world.sync()
    assert world.members("a_one") == TEAM - {"ggran6"}
