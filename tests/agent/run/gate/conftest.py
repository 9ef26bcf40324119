# SPDX-License-Identifier: MIT
"""A simulated Waldur and a cluster in memory, joined by a configuration with a policy of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.run import passes
from agent.run.results import PassReport
from agent.run.site import Site
from agent.state.held_plans import HeldPlans
from backends.testing.memory import MemoryBackend
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import AnyWorld, held, site_in_memory


class World(AnyWorld):
    """Orders at one offering, under the policy of the moment."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        self.waldur, self.folder, self.backend = waldur, folder, MemoryBackend()
        self.offering: dict[str, Any] = {}

    @property
    def site(self) -> Site:
        return self.under()

    def under(self, **policy: Any) -> Site:
        """The site with these rules in its configuration."""
        return site_in_memory(self.waldur, self.folder, self.backend, policy=policy, **self.offering)

    def process_orders(self, **policy: Any) -> PassReport:
        return passes.process_orders(self.under(**policy))

    def held(self) -> HeldPlans:
        return held(self.site, Mode.ORDER_PROCESS)

    def states(self, order_uuids: list[str]) -> set[str]:
        return {self.waldur.order(uuid).state.value for uuid in order_uuids}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=3)) as waldur:
        yield World(waldur, tmp_path)


def untouched(world: World) -> tuple[Any, ...]:
    waldur = world.waldur.site.state()
    return world.backend.state, waldur["orders"], waldur["resources"]
