# SPDX-License-Identifier: MIT
"""Kill workers, beats, bridges, Redis, its data, slurmdbd and Waldur at random, while orders are placed and members
come and go.

Two workers, two beats and two bridges run throughout. The tests run a tenth of it, the benchmark all of it.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from agent.host.waiting import NeverCame
from rig.bridge_process import BridgeProcess
from rig.celery_process import CeleryProcess, environment
from rig.event_kills import PROJECTS, SETTINGS, KillSetup, differences
from rig.operator_process import OperatorProcess
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.slurm_cluster import OPEN_TRANSACTIONS
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

# `data`: all that is in Redis.
VICTIMS = ("worker", "beat", "bridge", "redis", "data", "slurmdbd", "waldur")
AWAY_S = (0.2, 2.0)
FAULTS_LISTED = 5
DONE = "POST marketplace-orders/{uuid}/set_state_done/"


@dataclass
class ChaosResult:
    """What a run of kills came to."""

    seconds: float
    orders: int
    # By victim.
    kills: Counter[str]
    # Empty when the end state is right.
    faults: list[str] = field(default_factory=list)


class ChaosRun:
    def __init__(self, setup: KillSetup, waldur: SimulatedWaldur, *, kills: int, seed: int) -> None:
        self._setup = setup
        self._waldur = waldur
        self._random = random.Random(seed)
        # Each once before any comes again.
        self._victims = [
            name for _ in range(0, kills, len(VICTIMS)) for name in self._random.sample(VICTIMS, len(VICTIMS))
        ][:kills]
        self._redis = RedisServer(setup.folder / "redis", appendonly=True)
        self._orders: list[str] = []

    def run(self) -> ChaosResult:
        with ExitStack() as stack:
            self._redis.start()
            stack.callback(self._redis.stop)
            processes = self._processes()
            for twins in processes.values():
                for process in twins:
                    process.start(wait=False)
                    stack.callback(process.end)
            self._change_waldur(0)
            wait_until("work has begun", lambda: self._waldur.request_counts().get(DONE, 0) > 0)
            started_s = time.monotonic()
            for number, victim in enumerate(self._victims, 1):
                self._change_waldur(number)
                time.sleep(self._random.uniform(0.0, 1.0))
                self._kill(victim, processes)
            try:
                wait_until("the end state is right", lambda: not self._faults(), pause_s=0.5)
            except NeverCame as error:
                raise NeverCame(f"{error}: {'; '.join(self._faults()[:FAULTS_LISTED])}") from error
            seconds = time.monotonic() - started_s
        return ChaosResult(seconds, len(self._orders), Counter(self._victims), self._faults())

    def _processes(self) -> dict[str, tuple[OperatorProcess, OperatorProcess]]:
        folder, keys = self._setup.folder, self._setup.offering
        # In an hour more people leave here than at a site, each out of all accounts of a project, and most of each
        # team: none of that shall wait for a person. Everything else is as by default.
        accounts = len(self._victims) // PROJECTS + 1
        rules = {"max_removed_members": len(self._victims) * accounts, "max_removed_percent": 100}
        config = configuration(self._waldur, folder, membership_sync_backend="slurm", policy=rules, **keys)
        env = environment(
            config, self._redis.url, {"SLURM_CONF": self._setup.slurm.env["SLURM_CONF"], **SETTINGS}
        )

        def worker(name: str) -> OperatorProcess:
            return CeleryProcess("worker", folder / f"worker-{name}.log", env, "-n", f"{name}@%h")

        return {
            "worker": (worker("one"), worker("two")),
            "beat": (
                CeleryProcess("beat", folder / "beat-one.log", env),
                CeleryProcess("beat", folder / "beat-two.log", env),
            ),
            "bridge": (
                BridgeProcess(folder / "bridge-one.log", env),
                BridgeProcess(folder / "bridge-two.log", env),
            ),
        }

    def _kill(self, victim: str, processes: dict[str, tuple[OperatorProcess, OperatorProcess]]) -> None:
        """Kill a part, and start it again after a while."""
        away_s = self._random.uniform(*AWAY_S)
        again: Callable[[], object]
        if victim in processes:
            process = self._random.choice(processes[victim])
            process.kill()
            again = lambda: process.start(wait=False)  # noqa: E731
        elif victim == "redis":
            self._redis.kill()
            again = self._redis.start
        elif victim == "data":
            self._redis.flush()
            return
        elif victim == "slurmdbd":
            os.kill(self._setup.slurm.servers.pid("slurmdbd"), signal.SIGKILL)
            self._setup.slurm.stop_slurmdbd()
            again = self._setup.slurm.start_slurmdbd
        else:
            self._waldur.inject(Fault(kind=FaultKind.RESET, times=None))
            again = self._waldur.faults.clear
        time.sleep(away_s)
        again()

    def _change_waldur(self, number: int) -> None:
        """Place an order; one member comes, and an earlier one goes."""
        waldur, project = self._waldur, self._waldur.seed.project_uuids[number % PROJECTS]
        self._orders.append(
            waldur.place_create_order(project, f"o{number}", limits={"cpu": 10}, slug=f"o{number}")
        )
        waldur.people.add_member(project, f"newcomer{number}", account=f"newcomer{number}")
        if number >= PROJECTS:
            waldur.people.remove_member(project, f"newcomer{number - PROJECTS}")

    def _faults(self) -> list[str]:
        found = differences(self._setup.slurm, self._waldur, self._orders)
        if not found and self._setup.slurm.sql(OPEN_TRANSACTIONS):
            found = ["a write was cut short and left its locks"]
        return found


def run(setup: KillSetup, *, kills: int, seed: int = 1) -> ChaosResult:
    """Kill that many parts one after the other, and check the cluster against Waldur in the end."""
    with SimulatedWaldur(scenario=Scenario(projects_per_customer=PROJECTS, members_per_project=2)) as waldur:
        waldur.publish_to(setup.connect())
        return ChaosRun(setup, waldur, kills=kills, seed=seed).run()
