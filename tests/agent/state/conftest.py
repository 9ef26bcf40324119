# SPDX-License-Identifier: MIT
"""Folders for state files, an offering to remember things of, and a host that tests may change for themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.config.model import Offering, WaldurAccess
from agent.config.secret import Secret

OTHER_USER = 12345


def offering(number: int = 1) -> Offering:
    access = WaldurAccess(url="https://waldur.example/api/", token=Secret("t0ken"))
    return Offering(f"Offering {number}", f"{number:032x}", access, "slurm", {}, {}, {})


def in_private_mounts(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a Python script that may mount things and hide them from everybody else; skips where that is forbidden."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no private mounts here (unshare -m)")
    command = ["unshare", "-m", "--propagation", "private", sys.executable, "-c", script, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if "cannot mount" in done.stderr:
        pytest.skip("no mounts here")
    return done


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to work in folders of others")


@pytest.fixture
def foreign_folder() -> Iterator[Path]:
    """A state_dir of another user, who can reach it: pytest's own folders are closed to others."""
    above = Path(tempfile.mkdtemp())
    above.chmod(0o755)
    folder = above / "state"
    folder.mkdir(mode=0o700)
    os.chown(folder, OTHER_USER, OTHER_USER)
    yield folder
    shutil.rmtree(above)
