# SPDX-License-Identifier: MIT
"""Orders of a server of October 2024: the allocation object behind a resource, and orders that it errs by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.run import passes
from agent.run.site import Site, client
from backends.testing.memory import MemoryBackend
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur("2024", scenario=Scenario(members_per_project=2)) as server:
        yield server


def site_of(waldur: SimulatedWaldur, folder: Path, backend: MemoryBackend, **keys: str) -> Site:
    offering = settings_of(configuration(waldur, folder, **keys)).offerings[0]
    return Site(offering, client(offering, Mode.ORDER_PROCESS), backend, folder)


def made(waldur: SimulatedWaldur, site: Site) -> str:
    """Place and process a create order; the uuid of its resource."""
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 1}, slug="one")
    assert passes.process_orders(site).counted() == {"done": 1}
    return waldur.order(order).resource_uuid


def test_updates_in_a_row_are_done(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    backend = MemoryBackend()
    site = site_of(waldur, tmp_path, backend)
    resource = made(waldur, site)
    for cpu in (2, 3, 4):
        order = waldur.orders.place_update(resource, {"cpu": cpu})
        assert passes.process_orders(site).counted() == {"done": 1}
        assert waldur.order(order).state.value == "done"
        assert waldur.resource(resource).limits == {"cpu": cpu}
        assert backend.state.accounts["a_one"].limits == {"cpu": 60 * cpu}
