# SPDX-License-Identifier: MIT
"""Kill a worker again and again while orders are on their way.

The tests run a tenth of it, the benchmark all of it.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from agent.host.waiting import NeverCame
from rig.celery_process import CeleryProcess, environment
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.slurm_cluster import OPEN_TRANSACTIONS, SlurmCluster
from simulator.server.faults import Fault, FaultKind
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

PERIOD_MINUTES = "0.05"
MEMBERS = 5
LIMITS = {"cpu": 10, "mem": 2}
SLURM_LIMITS = "cpu=600,mem=120G"


@dataclass
class WorkerKillsResult:
    """What a run of kills came to."""

    kills: int
    seconds: float
    # Kills that hit orders half-done; a kill of an idle worker proves nothing.
    under_way: int
    # Empty when the end state is right.
    faults: list[str] = field(default_factory=list)


def run(
    slurm: SlurmCluster, redis: RedisServer, folder: Path, *, orders: int, kills: int, seed: int = 1
) -> WorkerKillsResult:
    """Place orders, kill the worker at random moments, and check the cluster when every order has ended."""
    redis.flush()
    moments = random.Random(seed)
    scenario = Scenario(customers=2, projects_per_customer=3, members_per_project=MEMBERS)
    with SimulatedWaldur(scenario=scenario) as waldur:
        variables = {
            "SLURM_CONF": slurm.env["SLURM_CONF"],
            "WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES": PERIOD_MINUTES,
        }
        env = environment(configuration(waldur, folder), redis.url, variables)
        # As from afar. Otherwise an order takes less than a second, and most kills hit none.
        slow = Fault(kind=FaultKind.DELAY, latency_ms=150, times=None)
        # No order can end before the first kill, which therefore hits one half-done on any machine.
        waldur.inject(Fault(kind=FaultKind.RESET, path="/set_state_done/", times=None))
        waldur.inject(slow)
        projects = waldur.seed.project_uuids
        placed: list[str] = []

        def place(until: int) -> None:
            for n in range(len(placed), until):
                project = projects[n % len(projects)]
                placed.append(
                    waldur.place_create_order(project, f"order {n}", limits=dict(LIMITS), slug=f"o{n}")
                )

        place(max(1, orders // 10))
        started_s = time.monotonic()
        worker = CeleryProcess("worker", folder / "worker.log", env)
        beat = CeleryProcess("beat", folder / "beat.log", env).start()
        done = under_way = 0
        try:
            worker.start()
            while done < kills:
                if done % 2:
                    time.sleep(moments.uniform(0.3, 5.0))
                elif done:
                    _wait_for_work(waldur, placed, moments.uniform(0.0, 0.8))
                else:
                    wait_until("an order under way", lambda: "executing" in _states(waldur, placed))
                worker.kill()
                waldur.faults.clear()
                waldur.inject(slow)
                done += 1
                under_way += "executing" in _states(waldur, placed)
                place(orders * done // kills)
                worker.start()
            wait_until("all orders ended", lambda: not _unfinished(waldur, placed), pause_s=0.2)
            seconds = time.monotonic() - started_s
        finally:
            beat.end()
            worker.end()
        return WorkerKillsResult(done, seconds, under_way, _faults(slurm, waldur, placed))


def _wait_for_work(waldur: SimulatedWaldur, placed: list[str], then_s: float) -> None:
    """Wait until an order is under way and `then_s` longer; 15 s at most: a fast worker may finish unseen."""
    deadline_s = time.monotonic() + 15
    while time.monotonic() < deadline_s and "executing" not in _states(waldur, placed):
        time.sleep(0.02)
    time.sleep(then_s)


def _states(waldur: SimulatedWaldur, placed: list[str]) -> set[str]:
    return {waldur.order(uuid).state.value for uuid in placed}


def _unfinished(waldur: SimulatedWaldur, placed: list[str]) -> list[str]:
    return [uuid for uuid in placed if waldur.order(uuid).state.value not in ("done", "erred")]


def _faults(slurm: SlurmCluster, waldur: SimulatedWaldur, placed: list[str]) -> list[str]:
    found = [f"order {uuid} is {waldur.order(uuid).state.value}" for uuid in placed]
    found = [text for text in found if not text.endswith(" done")]
    rows = slurm.ask("sacctmgr", "-nP", "show", "assoc", "format=account,user,grptresmins").splitlines()
    members: dict[str, int] = {}
    limits: dict[str, str] = {}
    for account, user, tres in (row.split("|") for row in rows):
        members[account] = members.get(account, 0) + bool(user)
        limits.setdefault(account, "" if user else tres)
    wanted = {f"a_o{n}" for n in range(len(placed))}
    made = {account for account in limits if account.startswith("a_")}
    if made != wanted:
        found.append(f"accounts missing {sorted(wanted - made)}, too many {sorted(made - wanted)}")
    found += [f"{a} has {members[a]} members" for a in sorted(made & wanted) if members[a] != MEMBERS]
    found += [f"{a} has limits {limits[a]}" for a in sorted(made & wanted) if limits[a] != SLURM_LIMITS]
    try:
        wait_until("no transaction is open", lambda: not slurm.sql(OPEN_TRANSACTIONS), pause_s=0.2)
    except NeverCame as left:
        found.append(f"{left}: a write was cut short and left its locks")
    return found
