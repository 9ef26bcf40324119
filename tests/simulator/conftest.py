# SPDX-License-Identifier: MIT
"""Simulated servers and plain HTTP callers for the tests of the simulation itself."""

from __future__ import annotations

import pytest

from simulator.server.waldur import SimulatedWaldur
from tests.agent.waldur.conftest import StartWaldur, start, waldur
from tests.simulator.caller import Caller

__all__ = ["StartWaldur", "start", "waldur"]


@pytest.fixture
def agent(waldur: SimulatedWaldur) -> Caller:
    return Caller(waldur, "agent")
