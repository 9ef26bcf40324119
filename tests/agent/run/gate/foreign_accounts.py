# SPDX-License-Identifier: MIT
"""An account that is not ours, and the question whether it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.associations import Association
from agent.core.model import Account
from agent.core.ownership import Origin
from agent.run import ownership
from agent.state import ledger
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import World, approve, held

PEOPLE = frozenset(f"physicist{n}" for n in range(100))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=2, projects_per_customer=2)) as waldur:
        yield World(waldur, tmp_path)


def put_physics(world: World, *, parent: str = "root") -> None:
    """An account of other people, with limits, jobs and a hundred members, whom Waldur does not know."""
    state = world.backend.state
    world.backend.state = replace(
        state,
        accounts={**state.accounts, "physics": Account("physics", parent, limits={"cpu": 60_000})},
        associations=state.associations | {Association("physics", user) for user in PEOPLE},
        default_accounts={**state.default_accounts, **dict.fromkeys(PEOPLE, "physics")},
        active_users={**state.active_users, ("physics", "physicist1"): 3},
        active_jobs={**state.active_jobs, "physics": 3},
    )


@pytest.fixture
def named(world: World) -> str:
    """A resource whose backend id a person has typed wrong. The offering was looked at before."""
    resource = world.allocate("one")
    world.converge()
    put_physics(world)
    world.change(resource, backend_id="physics")
    return resource


def physics(world: World) -> tuple[Account, frozenset[str]]:
    return world.cluster.accounts["physics"], world.cluster.users_of("physics")


def questions(world: World) -> list[str]:
    """The lines of what a person is asked to adopt."""
    return [line for plan in held(world.site, ownership.ADOPTION).planned() for line in plan.lines.values()]


def adopt(world: World) -> None:
    (plan,) = held(world.site, ownership.ADOPTION).planned()
    approve(world.site, ownership.ADOPTION, plan.id)


def origins(world: World) -> dict[str, Origin]:
    return dict(ledger.read(world.site.state_dir, world.backend.cluster, world.site.offering.uuid).origins)
