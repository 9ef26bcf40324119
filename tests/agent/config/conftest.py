# SPDX-License-Identifier: MIT
"""Fixtures of the configuration's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backends import registry
from backends.usernames import registry as usernames

from .samples import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a package with two plugins, `odd` of each kind, whose module has this text."""

    def made(text: str) -> None:
        folder = tmp_path / "packages"
        about = folder / "odd-1.0.dist-info"
        about.mkdir(parents=True)
        module = f"odd_{abs(hash(text))}"
        (folder / f"{module}.py").write_text(f"{text}\n")
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(
            f"[{registry.GROUP}]\nodd = {module}:plugin\n[{usernames.GROUP}]\nodd = {module}:plugin\n"
        )
        monkeypatch.syspath_prepend(str(folder))

    return made
