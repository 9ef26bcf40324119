# SPDX-License-Identifier: MIT
"""A head node whose SLURM programs answer by rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.slurm.stand_in import HeadNode


@pytest.fixture
def node(tmp_path: Path) -> HeadNode:
    return HeadNode(tmp_path)
