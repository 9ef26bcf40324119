# SPDX-License-Identifier: MIT
"""Simulated servers and plain HTTP callers for the tests of the simulation itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from simulator.server.waldur import SimulatedWaldur
from tests.simulator.caller import Caller

StartWaldur = Callable[..., SimulatedWaldur]


@pytest.fixture
def start() -> Iterator[StartWaldur]:
    """Starts servers of any age and scenario; all of them stop at the end of the test."""
    with ExitStack() as stack:

        def begin(age: str = "8.0", **options: Any) -> SimulatedWaldur:
            return stack.enter_context(SimulatedWaldur(age, **options))

        yield begin


@pytest.fixture
def waldur(start: StartWaldur) -> SimulatedWaldur:
    return start("8.0")


@pytest.fixture
def agent(waldur: SimulatedWaldur) -> Caller:
    return Caller(waldur, "agent")
