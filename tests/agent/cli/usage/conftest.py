# SPDX-License-Identifier: MIT
"""A small site with usage, and commands run in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.cli.conftest import command
from tests.agent.cli.usage.world import World, install

__all__ = ["command"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    scenario = Scenario(members_per_project=1, projects_per_customer=2, allocations_per_project=1)
    with SimulatedWaldur(scenario=scenario) as waldur:
        yield World(waldur, tmp_path)
