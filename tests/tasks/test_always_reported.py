# SPDX-License-Identifier: MIT
"""What fails before anything is begun is reported to the policy, too: no usable backend, a lock that is never free. In
a pause the message is kept instead.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.state import periodic_policies
from rig.celery_process import environment
from rig.redis_server import RedisServer
from rig.site import configuration, settings_of
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

pytestmark = pytest.mark.events

# Runs with the settings of a real process: Celery reads them when tasks are imported. The last attempt of ten.
SCRIPT = """
import sys
from tasks.queue import broker
from tasks.events import set_periodic_limits
offering, policy, resource, is_locked = sys.argv[1:]
if is_locked: broker.queue().take("periodic_limits:" + resource)
document = {"policy_uuid": policy, "resource_uuid": resource, "backend_id": "a_x", "settings": {"fairshare": 3},
            "action": "apply_periodic_settings", "timestamp": "2026-01-01T00:00:00"}
print(set_periodic_limits.apply((offering, document), retries=9).state)
"""


PERIODIC = {"periodic_limits": {"enabled": True}}


def last_attempt(waldur: SimulatedWaldur, redis: RedisServer, folder: Path, locked: str, **keys: Any) -> str:
    """How the task ends."""
    redis.flush()
    words = [waldur.seed.offering_uuid, waldur.site.add_policy(period=2), waldur.seed.resource_uuids[0]]
    config = configuration(waldur, folder, backend=PERIODIC, **keys)
    env = {**os.environ, **environment(config, redis.url)}
    command = [python(), "-c", SCRIPT, *words, locked]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_fails_before_its_beginning_is_reported(redis_server: RedisServer, tmp_path: Path) -> None:
    with SimulatedWaldur("8.0", scenario=Scenario(allocations_per_project=1)) as waldur:
        for backend, locked in (("slurm", "locked"), (None, "")):
            ended = last_attempt(waldur, redis_server, tmp_path, locked, order_processing_backend=backend)
            assert ended == "FAILURE"
        (busy, unusable) = waldur.store.command_results
        resource = waldur.seed.resource_uuids[0]
        assert not (busy.success or unusable.success)
        assert busy.error_message == f"periodic_limits:{resource} is being worked on by another task"
        assert unusable.error_message.startswith("backend '' is not installed")


def test_in_a_pause_the_task_ends_and_its_message_stays(redis_server: RedisServer, tmp_path: Path) -> None:
    with SimulatedWaldur("8.0", scenario=Scenario(allocations_per_project=1)) as waldur:
        policy = {"policy": {"paused": True}}
        ended = [last_attempt(waldur, redis_server, tmp_path, locked, **policy) for locked in ("", "locked")]
        settings = settings_of(tmp_path / "site.yaml")
        waiting = periodic_policies.parked(settings.state_dir, waldur.seed.offering_uuid)
        assert (ended, len(waiting), waldur.store.command_results) == (["SUCCESS", "FAILURE"], 2, [])
