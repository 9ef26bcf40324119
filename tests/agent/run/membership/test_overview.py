# SPDX-License-Identifier: MIT
"""What passes over members leave for the console: members, who is missing, who should not be in, and why."""

from __future__ import annotations

from agent.core.overview import SeenAllocation
from agent.state import overview
from agent.state.hints import SEEN_ALLOCATIONS, SEEN_PEOPLE
from tests.world import World


def seen(world: World) -> dict[str, SeenAllocation]:
    found = overview.find(world.site.state_dir, SEEN_ALLOCATIONS, [world.site.offering.uuid])
    return {each.value.account: each.value for each in found.rows}


def test_a_pass_leaves_what_it_saw(world: World) -> None:
    one, _ = world.allocate_all("one", "two")
    world.converge()
    found = seen(world)["a_one"]
    assert set(found.members) == world.members("a_one")
    assert (found.state, found.problem, found.missing, found.surplus) == ("OK", "", (), ())
    assert found.cluster_limits == dict(world.cluster.accounts["a_one"].limits)
    people = overview.people(world.site.state_dir, world.site.offering.uuid, found.members)
    assert people.keys() == set(found.members)
    world.stray("zoe", "a_two")
    world.change(one, paused=True)
    world.sync(resource=one)
    assert "paused" in seen(world)["a_one"].state
    assert "zoe" not in seen(world)["a_two"].members, "it was not looked at"
    assert overview.find(world.site.state_dir, SEEN_PEOPLE, [world.site.offering.uuid]).total >= len(people)


def test_what_has_ended_leaves_the_list_with_a_whole_pass(world: World) -> None:
    one, two = world.allocate_all("one", "two")
    world.converge()
    world.end(one)
    world.process_orders()
    world.sync(resource=two)
    assert set(seen(world)) == {"a_one", "a_two"}
    world.sync()
    assert set(seen(world)) == {"a_two"}


def test_a_pass_over_one_allocation_writes_of_nobody_else(world: World) -> None:
    one, _ = world.allocate_all("one", "two")
    world.converge()
    username = min(world.members("a_one"))
    world.leave(username)
    world.sync()
    where = (world.site.state_dir, world.site.offering.uuid)
    assert SEEN_PEOPLE.put(*where, {}, [username])
    world.sync(resource=one)
    assert not overview.people(*where, [username])
    world.sync()
    assert overview.people(*where, [username])
