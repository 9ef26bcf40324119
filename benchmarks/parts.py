# SPDX-License-Identifier: MIT
"""The real parts of a benchmark, started once and stopped at its end."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig.redis_server import RedisServer
from rig.slurm_cluster import SlurmCluster


@dataclass(frozen=True)
class Parts:
    slurm: SlurmCluster
    redis: RedisServer
    folder: Path

    def new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))


@contextmanager
def real_parts() -> Iterator[Parts]:
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        slurm, redis = SlurmCluster(folder / "slurm"), RedisServer(folder / "redis")
        slurm.start()
        redis.start()
        os.environ["SLURM_CONF"] = slurm.env["SLURM_CONF"]
        try:
            yield Parts(slurm, redis, folder)
        finally:
            slurm.stop()
            redis.stop()
