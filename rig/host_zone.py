# SPDX-License-Identifier: MIT
"""A host in a time zone of the test's choice, as `date` reports it, whatever zone this machine has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

PROGRAM = "date"


def set_host_zone(zone: str, folder: Path, environment: pytest.MonkeyPatch) -> None:
    """Make `date` report this zone, also without TZ. May be called again with the same folder."""
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part != str(folder))
    program = folder / PROGRAM
    program.write_text(f'#!/bin/sh\nTZ={zone} exec {shutil.which(PROGRAM, path=path)} "$@"\n')
    program.chmod(0o755)
    environment.setenv("PATH", f"{folder}{os.pathsep}{path}")
