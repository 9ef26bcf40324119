# SPDX-License-Identifier: MIT
"""Scripts that run with the settings of a real process: Celery reads them when tasks are imported."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from rig.celery_process import environment
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.warm_python import of_commands, python
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.operator_site import Ended

# What manage.py does, with all patience for its broker.
PATIENT = """
from tasks.queue import inspection
inspection.CONNECT_S = 600.0
from agent.cli.main import main
main()
"""


def patient(*words: str, env: Mapping[str, str]) -> Ended:
    """A command that waits for its broker as long as it takes."""
    command = [of_commands().program, "-c", PATIENT, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


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
