# SPDX-License-Identifier: MIT
"""A killed worker: every order ends done, every account is right, none stands twice."""

from __future__ import annotations

from pathlib import Path

from rig import worker_kills
from rig.redis_server import RedisServer
from rig.slurm_cluster import SlurmCluster


def test_a_killed_worker_loses_and_doubles_nothing(
    slurm: SlurmCluster, redis_server: RedisServer, tmp_path: Path
) -> None:
    outcome = worker_kills.run(slurm, redis_server, tmp_path, orders=3, kills=2)
    assert outcome.faults == []
    assert outcome.kills == 2
    assert outcome.under_way > 0
