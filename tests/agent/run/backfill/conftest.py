# SPDX-License-Identifier: MIT
"""Sites for tests of history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.cli.conftest import command
from tests.agent.run.backfill.operator import Operator, small_waldur
from tests.agent.run.backfill.world import History
from tests.agent.run.usage.world import scenario

__all__ = ["command"]

HistoryFactory = Callable[..., History]


@pytest.fixture
def make_history(tmp_path: Path) -> Iterator[HistoryFactory]:
    with ExitStack() as stack:

        def make(age: str = "8.0", *, seeded: Scenario | None = None, **options: Any) -> History:
            waldur = stack.enter_context(SimulatedWaldur(age, scenario=seeded or scenario()))
            return History(waldur, tmp_path, **options)

        yield make


@pytest.fixture
def history(make_history: HistoryFactory) -> History:
    return make_history()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with small_waldur() as waldur:
        yield Operator(waldur, tmp_path)


@pytest.fixture
def with_token(operator: Operator) -> str:
    """A configuration that names the token's file."""
    operator.token_file()
    return operator.configure(staff_token_file="staff-token")
