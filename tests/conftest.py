# SPDX-License-Identifier: MIT
"""Fixtures of all tests: the real parts live in tests.real, the simulated Waldur in agent.sim."""

from __future__ import annotations

import atexit
import os
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers get it from their parent
    # Root's default is a folder of the host, where a real agent may be at work.
    locks = tempfile.TemporaryDirectory(prefix="locks-")
    atexit.register(locks.cleanup)
    os.environ["WALDUR_SITE_AGENT_LOCK_DIR"] = locks.name

pytest_plugins = ["tests.real.fixtures"]
