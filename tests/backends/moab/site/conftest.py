# SPDX-License-Identifier: MIT
"""A site with a simulated Waldur and a stand-in MAM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli import conftest as command_line
from tests.backends.moab.site.world import World, scenario

WorldFactory = Callable[..., World]

command = command_line.command


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    """With two projects, and two allocations in the first of them that `World.stand` may bring to life."""
    with SimulatedWaldur(scenario=scenario(allocations_per_project=2)) as server:
        for uuid in server.seed.resource_uuids:
            server.site.change("resources", uuid, backend_id="")
        yield server


@pytest.fixture
def make_world(waldur: SimulatedWaldur, tmp_path: Path) -> WorldFactory:
    return lambda **options: World(waldur, tmp_path, **options)


@pytest.fixture
def world(make_world: WorldFactory) -> World:
    return make_world()
