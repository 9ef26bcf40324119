# SPDX-License-Identifier: MIT
"""A world in which most of a limit is used: to lower it waits for a person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.periodic import LimitType
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.periodic.periodic_world import PeriodicWorld
from tests.world import approve_all

LOWER = {"fairshare": 7, "grp_tres_mins": {"cpu": 600}, "reset_raw_usage": True}
MINUTES = LimitType.GRP_TRES_MINS


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur("8.0", scenario=Scenario(allocations_per_project=1)) as server:
        yield server


@pytest.fixture
def world(waldur: SimulatedWaldur, tmp_path: Path) -> PeriodicWorld:
    """Of 1000 CPU minutes 800 are used."""
    made = PeriodicWorld(waldur, tmp_path)
    made.account_settings.limits = {MINUTES: {"cpu": 1000}}
    made.cluster.uses(cpu=800)
    return made


def approve(world: PeriodicWorld) -> str:
    """Approve the one plan that waits; its id."""
    (plan,) = approve_all(world.site)
    return plan


LATER = "2026-01-02T00:00:00"
ASKED = {**LOWER, "grp_tres_mins": {"cpu": 900}}
