# SPDX-License-Identifier: MIT
"""Fixtures of the configuration's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from .samples import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
