# SPDX-License-Identifier: MIT
"""Sites upgrade their Waldur while the agent runs, from 2024 to 8.x: nothing moves, is renamed or removed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.actions import CreateAccount, DeleteAccount, MoveAccount, RemoveMember
from agent.core.model import Snapshot
from agent.run import passes
from agent.run.results import PassReport
from backends.base import Scope
from backends.testing.memory import MemoryBackend
from simulator.server.waldur import SimulatedWaldur
from simulator.world import seed
from simulator.world.ages import Age
from simulator.world.seed import Scenario
from tests.world import World

MOVING = (CreateAccount, DeleteAccount, MoveAccount, RemoveMember)


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    scenario = Scenario(members_per_project=3, unnamed_members=3)
    with SimulatedWaldur("2024", scenario=scenario) as server:
        yield server


@pytest.fixture
def world(waldur: SimulatedWaldur, tmp_path: Path) -> World:
    """Two projects with an account each, named by a server of 2024."""
    made = World(waldur, tmp_path, username_management_backend="template", reporting_backend="slurm")
    made.allocate("one")
    made.allocate("two", project=1)
    made.converge()
    return made


def tree(world: World) -> dict[str, str | None]:
    return {name: account.parent for name, account in world.cluster.accounts.items()}


def names(world: World) -> set[str]:
    return {row.username for row in world.waldur.store.offering_users}


def moved(report: PassReport) -> list[str]:
    assert report.error is None
    assert not report.failed, report.as_json()
    return [o.action.render() for o in report.outcomes if isinstance(o.action, MOVING)]


def test_accounts_keep_their_names_and_parents(world: World) -> None:
    before, people = tree(world), names(world)
    projects = world.waldur.seed.project_uuids
    assert {f"p_{uuid}" for uuid in projects} <= set(before)
    for age in ("8.0", "8.1"):
        world.waldur.site.upgrade(age)
        assert moved(world.sync()) == []
        world.converge()
        assert (tree(world), names(world)) == (before, people)
    world.allocate("three")
    assert tree(world) == {**before, "a_three": f"p_{projects[0]}"}


def test_the_last_termination_after_the_upgrade_takes_the_project_along(world: World) -> None:
    world.waldur.site.upgrade("8.1")
    resource = next(r for r in world.waldur.store.resources if r.backend_id == "a_one")
    world.waldur.orders.place_terminate(resource.uuid)
    assert passes.process_orders(world.site).counted() == {"done": 1}
    assert not {"a_one", f"p_{world.waldur.seed.project_uuids[0]}"} & set(tree(world))
    assert "a_two" in tree(world)


def test_answers_of_the_old_server_move_nothing_that_was_named_by_slug(world: World) -> None:
    """Two servers behind one address, one of them not upgraded yet."""
    world.waldur.site.upgrade("8.1")
    new = world.waldur.people.add_project("Newcomers", slug="newcomers")
    world.waldur.people.add_member(new, "newcomer")
    order = world.waldur.place_create_order(new, "four", limits={"cpu": 1}, slug="four")
    assert passes.process_orders(world.site).counted() == {"done": 1}
    assert tree(world)["a_four"] == "p_newcomers"
    world.converge()
    before = tree(world)
    for age in (Age.A2024, Age.V8_1, Age.A2024):
        world.waldur.store.age = age
        assert moved(world.sync()) == []
        assert tree(world) == before
    world.waldur.orders.place_terminate(world.waldur.order(order).resource_uuid)
    assert passes.process_orders(world.site).counted() == {"done": 1}
    assert "p_newcomers" not in tree(world)


def test_a_project_that_moves_to_another_customer_moves_after_the_upgrade_as_well(world: World) -> None:
    store = world.waldur.store
    world.waldur.site.upgrade("8.1")
    house = store.customers[world.waldur.seed.customer_uuids[0]]
    other = next(customer for customer in store.customers if customer.uuid != house.uuid)
    project = world.waldur.seed.project_uuids[0]
    world.waldur.site.change("projects", project, customer_uuid=other.uuid)
    world.sync()
    assert tree(world)[f"p_{project}"] == f"c_{other.slug}"
    assert tree(world)["a_one"] == f"p_{project}"


def test_another_slug_or_prefix_moves_nothing(world: World, tmp_path: Path) -> None:
    """Neither of the project nor of the customer; and what is ordered later joins what stands."""
    world.waldur.site.upgrade("8.1")
    new = world.waldur.people.add_project("Newcomers", slug="newcomers")
    world.waldur.place_create_order(new, "four", limits={"cpu": 1}, slug="four")
    assert passes.process_orders(world.site).counted() == {"done": 1}
    world.converge()
    before = tree(world)
    assert before["a_four"] == "p_newcomers"
    for customer in list(world.waldur.store.customers):
        world.waldur.site.change("customers", customer.uuid, slug=f"{customer.slug}-renamed")
    for project in list(world.waldur.store.projects):
        world.waldur.site.change("projects", project.uuid, slug=f"{project.slug}-renamed")
    assert moved(world.sync()) == []
    world.waldur.place_create_order(new, "five", limits={"cpu": 1}, slug="five")
    assert passes.process_orders(world.site).counted() == {"done": 1}
    assert tree(world) == {**before, "a_five": "p_newcomers"}
    names_of = replace(world.site.offering.names, customer_prefix="house_", project_prefix="team_")
    world.site = replace(world.site, offering=replace(world.site.offering, names=names_of))
    assert moved(world.sync()) == []
    assert tree(world) == {**before, "a_five": "p_newcomers"}


@pytest.mark.parametrize("level", ["project", "customer"])
def test_an_account_of_another_project_or_customer_is_not_joined_by_its_old_slug(
    world: World, level: str
) -> None:
    """The first is renamed, and the second takes its slug: each keeps an account of its own."""
    world.waldur.site.upgrade("8.1")
    store, change = world.waldur.store, world.waldur.site.change
    house, other = (seed.add_customer(store, name) for name in ("House", "Other"))
    first, second = (world.waldur.people.add_project(name) for name in ("First", "Second"))
    change("projects", first, customer_uuid=house.uuid, slug="first")
    change("projects", second, customer_uuid=other.uuid, slug="second")
    change("customers", house.uuid, slug="house")
    change("customers", other.uuid, slug="other")
    world.waldur.place_create_order(first, "four", limits={"cpu": 1}, slug="four")
    assert passes.process_orders(world.site).counted() == {"done": 1}
    world.converge()
    before = tree(world)
    assert (before["a_four"], before["p_first"]) == ("p_first", "c_house")
    if level == "project":
        project, customer = f"p_{second}", "c_other"
        change("projects", first, slug="renamed")
        change("projects", second, slug="first")
    else:
        project, customer = "p_second", f"c_{other.uuid}"
        change("customers", house.uuid, slug="renamed")
        change("customers", other.uuid, slug="house")
    world.waldur.place_create_order(second, "six", limits={"cpu": 1}, slug="six")
    assert passes.process_orders(world.site).counted() == {"done": 1}
    after = {**before, "a_six": project, project: customer, customer: "root"}
    assert tree(world) == after
    world.converge()
    assert tree(world) == after


class Upgrading(MemoryBackend):
    """A cluster; the server's age changes with each look at it and each change of it, in the middle of the pass."""

    then: Callable[[], None] = staticmethod(lambda: None)

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        self.then()
        return super().observe(scope)


AGES = (Age.V8_1, Age.A2024, Age.V8_0)


def test_an_upgrade_in_the_middle_of_passes_of_all_modes_changes_nothing(world: World) -> None:
    """The age changes with each look at the cluster, on and off as while two servers answer; then for good."""
    before, people = tree(world), names(world)
    backend = Upgrading(world.backend.settings, world.cluster)
    ages = itertools.cycle(AGES)

    def another() -> None:
        world.waldur.store.age = next(ages)

    backend.then = another
    world.backend, world.site = backend, replace(world.site, backend=backend)
    resource = next(r.uuid for r in world.waldur.store.resources if r.backend_id == "a_one")
    for turn in range(2 * len(AGES)):
        another()
        world.waldur.orders.place_update(resource, {"cpu": 20 + turn, "mem": 2})
        orders = passes.process_orders(world.site)
        assert set(orders.counted()) <= {"done", "retry", "waiting"}, orders.as_json()
        assert moved(world.sync()) == []
        usage = passes.PASSES[Mode.REPORT](world.site)
        assert not [o.action.render() for o in usage.outcomes if isinstance(o.action, MOVING)]
        assert (tree(world), names(world)) == (before, people)
        assert [r.state.value for r in world.waldur.store.resources if r.state.value == "Erred"] == []
    backend.then = lambda: None
    world.waldur.site.upgrade("8.1")
    while passes.process_orders(world.site).counted().get("retry"):
        pass
    world.converge()
    assert (tree(world), names(world)) == (before, people)
    assert backend.state.accounts["a_one"].limits["cpu"] == 60 * world.waldur.resource(resource).limits["cpu"]
