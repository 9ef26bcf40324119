# SPDX-License-Identifier: MIT
"""A stand-in MAM whose programs are forks of one process: a start of its own takes each call 20 ms of processor time,
most of it for imports. Who starts a fork is not its parent, so that a fault with `kill: parent` asks for real programs.
"""

from __future__ import annotations

from pathlib import Path

from rig import warm_python
from simulator.mam.install import StandIn


def quick_stand_in(folder: Path) -> StandIn:
    """Return a stand-in in this folder; its `make_programs()` makes real ones of its programs."""
    return StandIn(folder, python=str(warm_python.of_programs().program))
