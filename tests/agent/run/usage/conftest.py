# SPDX-License-Identifier: MIT
"""A site that reports: a simulated Waldur of any age, and a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.usage.world import World, scenario

WorldFactory = Callable[..., World]
AGES = ("2024", "8.0", "8.1")
MODERN = ("8.0", "8.1")


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[WorldFactory]:
    with ExitStack() as stack:

        def make(age: str = "8.0", *, seeded: Scenario | None = None, **options: Any) -> World:
            waldur = stack.enter_context(SimulatedWaldur(age, scenario=seeded or scenario()))
            return World(waldur, tmp_path, **options)

        yield make


@pytest.fixture
def world(make_world: WorldFactory) -> World:
    return make_world()
