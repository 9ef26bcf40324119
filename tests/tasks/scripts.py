# SPDX-License-Identifier: MIT
"""Scripts that run with the settings of a real process: Celery reads them when tasks are imported."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rig.celery_process import environment
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur


def lines_of(script: str, redis_server: RedisServer, folder: Path) -> list[str]:
    """What a script prints that gets the uuid of an offering, on an empty Redis."""
    redis_server.flush()
    with SimulatedWaldur() as waldur:
        config = configuration(waldur, folder, membership_sync_backend="slurm")
        offering = waldur.seed.offering_uuid
    env = {**os.environ, **environment(config, redis_server.url)}
    command = [python(), "-c", script, offering]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
