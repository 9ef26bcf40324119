# SPDX-License-Identifier: MIT
"""How many cases a property is tried on: 40, 400 in a full run, PLAN_EXAMPLES=5000 for a thorough search."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.scale import FULL

settings.register_profile(
    "plans",
    deadline=None,
    max_examples=int(os.environ.get("PLAN_EXAMPLES", "400" if FULL else "40")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("plans")
