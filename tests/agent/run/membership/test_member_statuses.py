# SPDX-License-Identifier: MIT
"""The progress of each member on the cluster is reported to Waldur: once for each change, and not in each pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.actions import AddMember
from agent.core.model import OfferingUser, Resource, ResourceState, TeamMember
from agent.plan import member_statuses
from agent.run.preview.previews import preview
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import World

OPTIONS = {"enable_membership_sync_status": True}
CALL = "set_membership_sync_statuses"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    scenario = Scenario(members_per_project=2, plugin_options=OPTIONS)
    with SimulatedWaldur("8.1", scenario=scenario) as waldur:
        yield World(waldur, tmp_path)


def in_waldur(world: World) -> dict[str, tuple[str, str]]:
    """State and message in Waldur, by login."""
    store = world.waldur.store
    return {store.users[person].username: status for (_, person, _), status in store.member_statuses.items()}


def reports(world: World) -> int:
    """How many reports one more pass sends."""
    world.waldur.requests.reset()
    world.sync()
    return sum(count for line, count in world.waldur.request_counts().items() if CALL in line)


def test_each_change_is_reported_once(world: World) -> None:
    world.allocate("one")
    world.converge()
    assert set(in_waldur(world).values()) == {("synced", "")}
    assert {role for _, _, role in world.waldur.store.member_statuses} <= {
        "PROJECT.MANAGER",
        "PROJECT.MEMBER",
        "PROJECT.ADMIN",
    }
    assert reports(world) == 0
    world.join("newbie", account="")
    assert [reports(world), reports(world)] == [1, 0]
    assert in_waldur(world)["newbie"] == ("pending", member_statuses.NO_NAME)
    world.waldur.people.set_account("newbie", "newbie")
    looked_at = [action.line() for action in preview(world.site, Mode.MEMBERSHIP_SYNC).allowed]
    assert any(line.endswith(": newbie synced") for line in looked_at)
    assert reports(world) == 1
    assert in_waldur(world)["newbie"] == ("synced", "")
    world.in_step()


def test_a_user_whom_the_cluster_refuses_is_reported_with_its_words(world: World) -> None:
    world.allocate("one")
    world.converge()
    world.backend.refuses = lambda action: isinstance(action, AddMember) and action.user == "newbie"
    world.join("newbie")
    assert [reports(world), reports(world)] == [1, 0]
    assert in_waldur(world)["newbie"] == ("error", "no")


def test_nothing_is_reported_of_a_cluster_that_was_not_read_back(world: World) -> None:
    world.allocate("one")
    world.converge()
    world.join("newbie")
    applied = False

    def away(call: str) -> bool:
        nonlocal applied
        applied = applied or call == "apply"
        return applied and call == "observe"

    world.backend.outage = away
    assert reports(world) == 0
    world.backend.outage = lambda _: False
    assert reports(world) == 1


@pytest.mark.parametrize(("age", "options"), [("8.1", {}), ("8.0", OPTIONS), ("2024", OPTIONS)])
def test_where_the_offering_does_not_want_it_at_most_one_request_is_lost(
    age: str, options: dict[str, bool], tmp_path: Path
) -> None:
    with SimulatedWaldur(age, scenario=Scenario(members_per_project=2, plugin_options=options)) as waldur:
        world = World(waldur, tmp_path)
        world.allocate("one")
        calls = [reports(world) for _ in range(3)]
    assert calls == [int(age != "8.1"), 0, 0]


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (OfferingUser("o", "u", "Ann", "OK"), ("synced", "")),
        (OfferingUser("o", "u", "bob", "OK"), ("pending", member_statuses.NOT_YET)),
        (OfferingUser("o", "u", "bad", "OK"), ("error", "no such user")),
        (
            OfferingUser("o", "u", "ann", "OK", runtime_state="Pending account linking"),
            ("pending", member_statuses.TO_DO.format("Pending account linking")),
        ),
        (OfferingUser("o", "u", "ann", "OK", is_restricted=True), None),
        (OfferingUser("o", "u", "ann", "Deleting"), None),
    ],
)
def test_the_status_of_one_person(user: OfferingUser, expected: tuple[str, str] | None) -> None:
    resource = Resource("r", "one", "one", ResourceState.OK)
    found = list(
        member_statuses.statuses(
            resource, [TeamMember("u")], {"u": user}, frozenset({"ann"}), {"bad": "no such user"}
        )
    )
    assert [(each.state, each.message) for each in found] == ([expected] if expected else [])
