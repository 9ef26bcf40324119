# SPDX-License-Identifier: MIT
"""Fixtures of all tests: the real parts live in rig, the simulated Waldur in simulator."""

from __future__ import annotations

import atexit
import os
import signal
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers get it from their parent
    # Root's default is a folder of the host, where a real agent may be at work.
    locks = tempfile.TemporaryDirectory(prefix="locks-")
    atexit.register(locks.cleanup)
    os.environ["WALDUR_SITE_AGENT_LOCK_DIR"] = locks.name

# Where the tests run in a shell's background SIGINT is ignored, and so would be the Ctrl-C that some send to children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["backends.testing.plugin", "rig.fixtures"]
