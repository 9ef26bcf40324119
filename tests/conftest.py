# SPDX-License-Identifier: MIT
"""Fixtures of all tests: the real parts live in rig, the simulated Waldur in simulator."""

from __future__ import annotations

import atexit
import os
import signal
import tempfile
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers get it from their parent
    # Root's default is a folder of the host, where a real agent may be at work.
    locks = tempfile.TemporaryDirectory(prefix="locks-")
    atexit.register(locks.cleanup)
    os.environ["WALDUR_SITE_AGENT_LOCK_DIR"] = locks.name

# Where the tests run in a shell's background SIGINT is ignored, and so would be the Ctrl-C that some send to children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["backends.testing.plugin", "rig.fixtures"]

# Files that take longest, with few tests each: begun first (`--no-loadscope-reorder`), so that in the end no process
# is left alone with one of them.
LONGEST = (
    *("cluster/test_queue", "cluster/test_memory", "cli/test_demo", "orders/test_every_step"),
    *("membership/test_faults", "bridge/test_kills", "cluster/test_membership", "membership/test_people"),
    *("membership/test_real_slurm", "plan/test_membership_properties", "plan/test_policy_properties"),
    *("cli/test_approve", "events/test_every_step", "safety/test_floods", "engine/test_every_step"),
    "engine/test_people_at_every_step",
    *(
        "orders/test_lifecycle",
        "membership/test_shared_accounts",
        "membership/test_teams",
        "homes/test_failures",
    ),
    *(
        "backends/test_contract",
        "membership/test_deletions",
        "cluster/test_broker_tls",
        "plan/test_properties",
    ),
    *("rig/test_harness", "report/test_held", "bridge/test_stomp", "bridge/test_many_offerings"),
    *("fuzz/test_passes", "cluster/test_kills", "cluster/test_broker_sentinel", "bridge/test_travel"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {Path(__file__).parent / f"{name}.py": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))
