# SPDX-License-Identifier: MIT
"""A site whose events travel: simulated Waldur, a real broker, the bridge as its own process, real Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from rig.bridge_process import BridgeProcess
from rig.celery_process import CeleryProcess, environment
from rig.emulator import emulated_cluster
from rig.redis_server import RedisServer
from rig.site import configuration
from simulator.server.waldur import SimulatedWaldur

Start = Callable[..., Any]


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur() as server:
        yield server


@pytest.fixture
def site(waldur: SimulatedWaldur, redis_server: RedisServer, tmp_path: Path) -> Iterator[EventSite]:
    redis_server.flush()
    made = EventSite(waldur, redis_server, tmp_path)
    yield made
    made.stop()


class EventSite:
    """Starts the processes of a site; all are stopped at the end, and their logs printed when the test fails."""

    def __init__(self, waldur: SimulatedWaldur, redis: RedisServer, folder: Path) -> None:
        self.waldur = waldur
        self.redis = redis
        self.folder = folder
        self.commands, self.emulator = emulated_cluster(folder)
        self._running: list[Any] = []

    def configure(self, **offering: Any) -> Path:
        backend = {
            "slurm_bin_path": str(self.commands),
            "cluster_name": "demo",
            "enable_user_homedir_account_creation": False,
        }
        keys = {"membership_sync_backend": "slurm", **offering}
        self.config = configuration(self.waldur, self.folder, backend=backend, **keys)
        return self.config

    def environment(self, **more: str) -> dict[str, str]:
        return environment(self.config, self.redis.url, {**self.emulator, **more})

    def bridge(self, *, wait: bool = True, **more: str) -> BridgeProcess:
        log = self.folder / f"bridge-{len(self._running)}.log"
        process = BridgeProcess(log, self.environment(**more))
        self._running.append(process)
        return process.start(wait=wait)

    def celery(self, role: str, *args: str, wait: bool = True, **more: str) -> CeleryProcess:
        log = self.folder / f"{role}-{len(self._running)}.log"
        process = CeleryProcess(role, log, self.environment(**more), *args)
        self._running.append(process)
        return process.start(wait=wait)

    def redis_client(self) -> Any:
        return redis.Redis.from_url(self.redis.url)

    def worker(self, *, wait: bool = True) -> CeleryProcess:
        return self.celery("worker", wait=wait)

    def stop(self) -> None:
        for process in reversed(self._running):
            process.end()
            print(process.output())
