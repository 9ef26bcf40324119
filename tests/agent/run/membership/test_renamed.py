# SPDX-License-Identifier: MIT
"""People whose usernames change: a few at a time do, many keep their names until an operator approves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.policy import BUDGETS, Cost
from agent.run import passes
from agent.state import held_plans
from agent.state.store import Store
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import World, approve_all

FEW = BUDGETS[Cost.PEOPLE_RENAMED].hour
MANY = 20
POLICY = "username_generation_policy"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Twenty people in three accounts."""
    scenario = Scenario(projects_per_customer=1, members_per_project=MANY)
    with SimulatedWaldur(scenario=scenario) as waldur:
        made = World(waldur, tmp_path)
        for name in ("one", "two", "three"):
            made.allocate(name)
        made.converge()
        yield made


def rename(world: World, count: int, prefix: str = "new") -> dict[str, str]:
    """Give so many people other names in Waldur; the old and the new ones."""
    names = {}
    for row in sorted(world.waldur.store.offering_users, key=lambda row: row.username)[:count]:
        names[row.username] = f"{prefix}{row.username}"
        row.username = names[row.username]
    return names


def test_one_person_is_renamed_in_all_accounts_at_once(world: World) -> None:
    ((old, new),) = rename(world, 1).items()
    assert world.sync().held == ()
    for account in ("a_one", "a_two", "a_three"):
        assert new in world.members(account) and old not in world.members(account)
    world.in_step()


@pytest.mark.parametrize("how", ["in one pass", "by events"])
def test_many_are_one_plan_and_keep_their_names_until_it_is_approved(world: World, how: str) -> None:
    before = world.members("a_one")
    names = rename(world, FEW + 1)
    uuids = [resource.uuid for resource in world.waldur.store.resources]
    reports = [world.sync(resource=uuid) for uuid in uuids] if how == "by events" else []
    report = world.sync()
    for each in (*reports, report):
        assert each.error is None
    (plan,) = report.held
    assert f"the usernames of {FEW + 1} users would change" in plan.reason
    assert len(plan.actions) == 3 * 2 * (FEW + 1), "old names leave, and new ones join"
    for account in ("a_one", "a_two", "a_three"):
        assert world.members(account) == before
    approve_all(world.site)
    assert world.sync().held == ()
    assert world.members("a_one") == (before - names.keys()) | set(names.values())


def test_one_by_one_they_meet_the_same_budget(world: World) -> None:
    before = world.members("a_one")
    for number in range(MANY):
        row = sorted(world.waldur.store.offering_users, key=lambda row: row.user_uuid)[number]
        row.username = f"other{number}"
        world.sync(resource=next(r.uuid for r in world.waldur.store.resources))
    assert len(world.members("a_one") & before) == MANY - FEW
    assert len([name for name in world.members("a_one") if name.startswith("other")]) == FEW


def test_an_order_adds_people_under_the_names_that_they_have(world: World) -> None:
    before = world.members("a_one")
    rename(world, MANY)
    world.sync()
    world.place("four")
    world.processed(done=1)
    assert world.members("a_four") == before
    (plan,) = world.sync().held
    assert len(plan.actions) == 4 * 2 * MANY
    assert world.members("a_four") == before


def test_who_comes_with_a_name_of_their_own_joins(world: World) -> None:
    rename(world, MANY)
    world.sync()
    world.join("newcomer")
    world.sync()
    assert "newcomer" in world.members("a_one")


def test_what_is_taken_back_changes_nothing(world: World) -> None:
    before = world.members("a_one")
    names = rename(world, MANY)
    world.sync()
    back = {new: old for old, new in names.items()}
    for row in world.waldur.store.offering_users:
        row.username = back[row.username]
    world.in_step()
    assert world.members("a_one") == before
    assert held_plans.HeldPlans(world.site.state_dir, world.site.offering, "membership_sync").planned() == []


# A server of 2024 whose offering gets another policy for a while --------------------------------------


@pytest.fixture
def server_of_2024(tmp_path: Path) -> Iterator[World]:
    """Twenty people with names of ours."""
    scenario = Scenario(projects_per_customer=1, members_per_project=MANY, unnamed_members=MANY)
    with SimulatedWaldur("2024", scenario=scenario) as waldur:
        made = World(waldur, tmp_path, username_management_backend="template")
        made.allocate("one")
        made.converge()
        yield made


def set_policy(world: World, policy: str) -> None:
    uuid = world.waldur.seed.offering_uuid
    options = world.waldur.store.offerings[uuid].plugin_options
    world.waldur.site.change("offerings", uuid, plugin_options={**options, POLICY: policy})
    world.site.cache.offering = None


def names(world: World) -> dict[str, str]:
    return {row.user_uuid: row.username for row in world.waldur.store.offering_users}


def test_the_names_of_another_policy_are_not_kept_for_good(server_of_2024: World) -> None:
    """Pass 1 joined them once, and pass 2 wrote them into Waldur, and emptied accounts of the old ones."""
    world = server_of_2024
    before, inside = names(world), world.members("a_one")
    set_policy(world, "waldur_username")
    assert set(names(world).values()).isdisjoint(before.values())
    for _ in range(2):
        world.sync()
        assert world.members("a_one") == inside
    world.allocate("two")
    assert world.members("a_two") == inside
    with Store(world.site.state_dir).write() as db:  # as after an upgrade
        db.run("DELETE FROM cluster_usernames")
    world.sync()
    assert world.members("a_one") == inside
    set_policy(world, "service_provider")
    assert set(names(world).values()) == {""}
    for _ in range(3):
        world.sync()
    assert names(world) == before
    assert world.members("a_one") == world.members("a_two") == inside
    world.in_step()


def test_another_name_for_many_who_had_one_waits_in_waldur_as_well(server_of_2024: World) -> None:
    """The names that they had are another person's by now: each would get another one."""
    world = server_of_2024
    set_policy(world, "service_provider")
    before = names(world)
    assert set(before.values()) == {""}
    inside = world.members("a_one")
    for number, name in enumerate(sorted(inside)):
        world.waldur.people.add_user(f"squatter{number}", full_name="Some Body")
        world.waldur.people.set_account(f"squatter{number}", name)
    report = world.sync()
    assert any("usernames" in plan.reason for plan in report.held), [plan.reason for plan in report.held]
    given = [row.username for row in world.waldur.store.offering_users if row.user_uuid in before]
    assert given.count("") >= MANY - FEW
    assert world.members("a_one") == inside
    assert passes.process_orders(world.site).error is None
