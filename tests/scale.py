# SPDX-License-Identifier: MIT
"""How much of the big tests runs: a part in `make test`, all of it with FULL_TESTS=1 (`make nightly`)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rig.parts import REDIS_PROGRAMS

FULL = os.environ.get("FULL_TESTS") == "1"
# What TLS and failover are tried on; the contract of the queue runs on each of them always.
REDIS_KINDS = ("redis", *(REDIS_PROGRAMS if FULL else ()))


def steps(stop: int, *, start: int = 0, stride: int = 10) -> Iterator[int]:
    """All steps in a full run; every tenth, beginning anywhere, in the short one."""
    return iter(range(start, stop, 1 if FULL else stride))
