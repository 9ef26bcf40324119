# SPDX-License-Identifier: MIT
"""Worlds of many teams, and what floods do to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.run.results import PassReport
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import World

WorldOf = Callable[..., World]


@pytest.fixture
def world_of(tmp_path: Path) -> Iterator[WorldOf]:
    """A world whose projects have one allocation each, all in step."""
    servers: list[SimulatedWaldur] = []

    def make(
        projects: int, members: int, *, allocations: int = 1, age: str = "8.0", **offering: Any
    ) -> World:
        server = SimulatedWaldur(
            age,
            scenario=Scenario(
                projects_per_customer=projects,
                members_per_project=members,
                allocations_per_project=allocations,
                allocation_limits={"cpu": 1000, "mem": 2000},
            ),
        )
        server.__enter__()
        servers.append(server)
        world = World(server, tmp_path, **offering)
        world.fill()
        return world

    yield make
    for server in servers:
        server.__exit__(None, None, None)


def members(world: World) -> int:
    return len({(each.account, each.user) for each in world.cluster.associations})


def emptied(world: World, count: int | None = None) -> None:
    """So many of each team, or all, have left."""
    for number, project in enumerate(world.waldur.seed.project_uuids):
        for username in world.waldur.seed.members[project][:count]:
            world.waldur.people.remove_member(world.waldur.seed.project_uuids[number], username)


def events(world: World) -> list[PassReport]:
    """A pass for each project, as an event about each brings one."""
    return [world.sync(project=project) for project in world.waldur.seed.project_uuids]


def reconciled(world: World, how: str) -> list[PassReport]:
    """What Waldur has now reaches the cluster by one pass over everything, or by an event about each project."""
    return events(world) if how == "by events" else [world.sync()]


HOW = pytest.mark.parametrize("how", ["in one pass", "by events"])
