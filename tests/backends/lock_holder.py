# SPDX-License-Identifier: MIT
"""A process that holds the lock of a cluster, and a look whether one does."""

from __future__ import annotations

from pathlib import Path

from agent.core.errors import ClusterBusy
from backends.lock import WriteLock

HOLDER = """
from pathlib import Path
from backends.lock import WriteLock
state, held, go = sys.argv[1:]
with WriteLock(Path(state), "c1"):
    Path(held).touch()
    wait_for(go)
"""

# Ends at once, and leaves the lock to its child.
ORPHAN = """
from pathlib import Path
from backends.lock import WriteLock
state, go = sys.argv[1:]
WriteLock(Path(state), "c1").__enter__()
if os.fork():
    os._exit(0)
wait_for(go)
"""


def is_free(state: Path, target: str = "c1") -> bool:
    try:
        with WriteLock(state, target, wait_s=0):
            return True
    except ClusterBusy:
        return False
