# SPDX-License-Identifier: MIT
"""A stand-in MAM of each test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.mam import quick_stand_in
from simulator.mam.install import StandIn


@pytest.fixture
def mam(tmp_path: Path) -> StandIn:
    made = quick_stand_in(tmp_path)
    made.watch()
    return made
