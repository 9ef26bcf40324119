# SPDX-License-Identifier: MIT
"""What a report costs, counted: processes of the cluster, and requests. Seconds are measured in benchmarks."""

from __future__ import annotations

import math

import pytest

from agent.waldur.listing import PAGE_SIZE
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.usage.conftest import AGES, WorldFactory
from tests.agent.run.usage.world import HOUR, LAST, World, scenario

pytestmark = pytest.mark.cost

SETS = "POST marketplace-component-usages/set_usage/"
SHARES = "POST marketplace-component-usages/{uuid}/set_user_usages/"
RECORDS = "GET marketplace-component-usages/"


def pages(items: int) -> int:
    return max(1, math.ceil(items / PAGE_SIZE))


def filled(make_world: WorldFactory, number: int, **options: object) -> World:
    seeded = scenario(projects_per_customer=number // 10, allocations_per_project=10, members_per_project=0)
    world = make_world(seeded=seeded, **options)
    for n, account in enumerate(world.accounts, 1):
        for user in range(3):
            world.ran(account, f"u{user}", n, mem=1024 * HOUR)
    return world


def counts(waldur: SimulatedWaldur) -> dict[str, int]:
    found = waldur.request_counts()
    waldur.requests.reset()
    return found


@pytest.mark.parametrize("number", [10, 200])
def test_a_month_costs_two_processes_and_a_request_for_each_change(
    make_world: WorldFactory, number: int
) -> None:
    world = filled(make_world, number, periods=1)
    counts(world.waldur)
    first = world.report()
    assert first.effort.commands == {"read": 2}, "accounts, and the month"
    asked = counts(world.waldur)
    assert asked == {
        "GET marketplace-provider-offerings/{uuid}/": 1,
        "GET marketplace-provider-offerings/{uuid}/user-attribute-config/": 1,
        "GET marketplace-provider-resources/": pages(number),
        "GET marketplace-offering-users/": 1,
        # Once more for the records that the totals made.
        RECORDS: 1 + pages(2 * number),
        "GET marketplace-component-user-usages/": 1,
        SETS: number,
        SHARES: 2 * number,
    }
    second = world.report()
    assert (second.effort.commands, second.in_step) == ({"read": 2}, number)
    assert counts(world.waldur) == {
        "GET marketplace-provider-offerings/{uuid}/": 1,
        "GET marketplace-provider-resources/": pages(number),
        "GET marketplace-offering-users/": 1,
        RECORDS: pages(2 * number),
        "GET marketplace-component-user-usages/": pages(3 * 2 * number),
    }


def test_what_changed_costs_one_request_for_a_resource_and_one_for_each_component_of_users(
    make_world: WorldFactory,
) -> None:
    world = filled(make_world, 20)
    world.report()
    world.ran("a_1", "u1", 1)
    world.ran("a_2", "u1", 1, mem=1024 * HOUR)
    world.ran("a_2", "u2", 1, mem=1024 * HOUR)
    counts(world.waldur)
    world.report()
    asked = counts(world.waldur)
    assert {name: count for name, count in asked.items() if name.startswith("POST")} == {SETS: 2, SHARES: 3}


def test_two_months_cost_three_processes(make_world: WorldFactory) -> None:
    world = filled(make_world, 10, user="staff")
    world.ran("a_1", "u1", 1, month=LAST, mem=1)
    assert world.report().effort.commands == {"read": 3}


def test_tres_that_no_job_used_cost_one_more(world: World) -> None:
    world.ran("a_1", "ann", 1)
    world.ran("a_1", "ann", 1, month=LAST)
    assert world.report().effort.commands == {"read": 4}


def test_a_decrease_costs_one_more(world: World) -> None:
    for account in world.accounts:
        world.ran(account, "ann", 2, job=f"job-{account}", live=True, mem=1)
    world.report()
    for account in world.accounts:
        world.alter(f"job-{account}", counts={"cpu": HOUR, "mem": 1}, seconds=HOUR)
    found = world.report()
    assert len(found.held) == 4
    assert found.effort.commands == {"read": 4}, "accounts, two months, and the jobs of all four at once"


@pytest.mark.parametrize("age", AGES)
def test_servers_without_a_bulk_call_cost_one_request_for_each_user(
    make_world: WorldFactory, age: str
) -> None:
    world = filled(make_world, 10, age=age, periods=1)
    world.report()
    asked = counts(world.waldur)
    single = asked.get("POST marketplace-component-usages/{uuid}/set_user_usage/", 0)
    bulk = sum(count for name, count in asked.items() if name.endswith("/set_user_usages/"))
    assert (single, bulk) == ((60, 1) if age == "2024" else (0, 20))
    world.report()
    assert not [name for name in counts(world.waldur) if name.startswith("POST")]
