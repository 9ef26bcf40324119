# SPDX-License-Identifier: MIT
"""A site with a simulated Waldur and a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import World

WorldFactory = Callable[..., World]


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=3, projects_per_customer=2)) as server:
        yield server


@pytest.fixture
def make_world(waldur: SimulatedWaldur, tmp_path: Path) -> WorldFactory:
    def make(**options: Any) -> World:
        return World(waldur, tmp_path, **options)

    return make


@pytest.fixture
def world(make_world: WorldFactory) -> World:
    return make_world()
