# SPDX-License-Identifier: MIT
"""How many cases a property is tried on: PLAN_EXAMPLES=5000 for a thorough search."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "plans",
    deadline=None,
    max_examples=int(os.environ.get("PLAN_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("plans")
