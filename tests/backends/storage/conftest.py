# SPDX-License-Identifier: MIT
"""A head node of stand-ins, its tools on PATH."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.storage.world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:{os.environ['PATH']}")
    yield made
    made.let_go()
