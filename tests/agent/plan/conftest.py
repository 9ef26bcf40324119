# SPDX-License-Identifier: MIT
"""How many cases a property is tried on: 80, 400 in a full run, PLAN_EXAMPLES=5000 for a thorough search."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.scale import FULL

# Of 42 places of planners that were changed at random the properties found 11: ten within 9 cases, one with the 33rd.
# Of 55 first failures of single properties 41 came within 11 cases, 8 from the 25th to the 41st, and 6 later. The
# properties of a file share their cases.
settings.register_profile(
    "plans",
    deadline=None,
    max_examples=int(os.environ.get("PLAN_EXAMPLES", "400" if FULL else "80")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("plans")
