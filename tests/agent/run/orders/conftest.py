# SPDX-License-Identifier: MIT
"""A simulated Waldur and a real SLURM, joined by a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.run.site import Site, client
from backends.testing.memory import MemoryBackend, slurm_settings
from rig.site import configuration, settings_of, site_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

SiteFactory = Callable[..., Site]


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=2)) as server:
        yield server


@pytest.fixture
def on_slurm(slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path) -> SiteFactory:
    """Make the site on the real SLURM, with these backend settings and offering keys."""

    def make(**options: Any) -> Site:
        return site_of(configuration(waldur, tmp_path, **options))

    return make


@pytest.fixture
def in_memory(waldur: SimulatedWaldur, tmp_path: Path) -> SiteFactory:
    """Make the site on a cluster in memory, with these backend settings and offering keys."""

    def make(**options: Any) -> Site:
        offering = settings_of(configuration(waldur, tmp_path, **options)).offerings[0]
        backend = MemoryBackend(settings=slurm_settings(**options.get("backend", {})))
        return Site(offering, client(offering, Mode.ORDER_PROCESS), backend, tmp_path)

    return make
