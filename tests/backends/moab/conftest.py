# SPDX-License-Identifier: MIT
"""A stand-in MAM of each test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.mam.install import StandIn


@pytest.fixture
def mam(tmp_path: Path) -> StandIn:
    made = StandIn(tmp_path)
    made.watch()
    return made
