# SPDX-License-Identifier: MIT
"""A simulated Waldur and a cluster in memory, joined by a configuration with a policy of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.run import passes
from agent.run.results import PassReport
from agent.run.site import Site
from agent.state.held_plans import HeldPlans
from agent.waldur.client import WaldurClient
from backends.testing.memory import MemoryBackend
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario


@dataclass
class World:
    """One offering under a policy."""

    waldur: SimulatedWaldur
    folder: Path
    backend: MemoryBackend = field(default_factory=MemoryBackend)

    def site(self, **policy: Any) -> Site:
        path = configuration(self.waldur, self.folder, policy=policy, **self.offering)
        offering = settings_of(path).offerings[0]
        client = WaldurClient(
            offering.access, user_agent="waldur-site-agent-test", offering_uuid=offering.uuid
        )
        return Site(offering, client, self.backend, self.folder / "state")

    offering: dict[str, Any] = field(default_factory=dict)

    def held(self) -> HeldPlans:
        site = self.site()
        return HeldPlans(site.state_dir, site.offering, Mode.ORDER_PROCESS)

    def place(self, *slugs: str, **limits: Any) -> list[str]:
        """Create orders; the uuids of their resources."""
        project = self.waldur.seed.project_uuids[0]
        placed = [
            self.waldur.place_create_order(project, slug, limits=limits or {"cpu": 10}, slug=slug)
            for slug in slugs
        ]
        return [self.waldur.order(order).resource_uuid for order in placed]

    def standing(self, *slugs: str, **limits: Any) -> list[str]:
        """Allocations that are there already."""
        found = self.place(*slugs, **limits)
        self.settle()
        return found

    def end(self, resources: list[str]) -> list[str]:
        return [self.waldur.orders.place_terminate(resource) for resource in resources]

    def settle(self, **policy: Any) -> PassReport:
        return passes.process_orders(self.site(**policy))

    def states(self, order_uuids: list[str]) -> set[str]:
        return {self.waldur.order(uuid).state.value for uuid in order_uuids}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=3)) as waldur:
        yield World(waldur, tmp_path)


Settle = Callable[..., PassReport]
