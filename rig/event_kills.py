# SPDX-License-Identifier: MIT
"""Kill broker, Redis, bridge and worker in turn while orders, members and a flood of event messages are on their way.

The tests run a tenth of it, the benchmark all of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rig.bridge_brokers import mqtt_keys, rabbitmq_side, stomp_keys
from rig.bridge_process import BridgeProcess
from rig.celery_process import CeleryProcess, environment
from rig.mosquitto import Mosquitto
from rig.processes import wait_until
from rig.rabbitmq import RabbitMq
from rig.recording_bridge import NUMBER
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.slurm_cluster import SlurmCluster
from simulator.events.broker import EventBroker
from simulator.events.changes import Message
from simulator.events.mqtt import MqttBroker
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tasks.queue.heartbeats import HEARTBEAT

MEMBERS = 2
PROJECTS = 3
KINDS = ("order", "user_role", "resource", "offering_user")
SETTINGS = {
    "WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES": "0.1",
    "WALDUR_SITE_AGENT_MEMBERSHIP_SYNC_PERIOD_MINUTES": "0.1",
    # Brings what a killed worker lost after the bridge.
    "WALDUR_SITE_AGENT_RECONCILIATION_PERIOD_MINUTES": "0.25",
}


class Killable(Protocol):
    def kill(self) -> None: ...

    def start(self) -> Any: ...


@dataclass(frozen=True)
class KillSetup:
    """A broker to kill, with what is around it."""

    slurm: SlurmCluster
    folder: Path
    # It is killed.
    broker: Killable
    # How the simulated Waldur reaches the broker.
    connect: Callable[[], EventBroker]
    offering: dict[str, Any]
    # A message that has not come after so much silence is taken as lost; RabbitMQ needs a while to see that a
    # connection is dead.
    quiet_s: float = 180.0


@dataclass
class EventKillsResult:
    """What became of the messages."""

    sent: int
    kills: int
    seconds: float
    # Messages that reached a bridge, were not acknowledged, and did not come again.
    lost: int
    # The broker confirmed them to Waldur and never delivered them.
    forgotten: int
    doubled: int
    # Empty when the end state is right.
    faults: list[str] = field(default_factory=list)


class EventKillsRun:
    """One run: `events` messages with a number each, in addition to those of changes that really happen in Waldur."""

    def __init__(
        self, setup: KillSetup, waldur: SimulatedWaldur, *, events: int, rounds: int, seed: int
    ) -> None:
        self._setup = setup
        self._waldur = waldur
        self._events = events
        self._rounds = rounds
        self._random = random.Random(seed)
        self._record = setup.folder / "acknowledged"
        self.redis = RedisServer(setup.folder / "redis", appendonly=True)
        self._sent = 0
        self._orders: list[str] = []
        self.kills = 0

    def run(self) -> EventKillsResult:
        with ExitStack() as stack:
            self.redis.start()
            stack.callback(self.redis.stop)
            worker, beat, bridge = self._processes()
            for process in (worker, beat, bridge):
                process.start(wait=False)
                stack.callback(process.end)
            heartbeat = f"EXISTS site-{HEARTBEAT}{self._waldur.seed.offering_uuid}"
            wait_until("the bridge listens", lambda: self.redis.command(heartbeat) == b":1\r\n")
            started_s = time.monotonic()
            victims = (bridge, self.redis, self._setup.broker, worker, bridge)
            for number in range(self._rounds):
                self._change_waldur(number)
                self._send((number + 1) * self._events // self._rounds)
                time.sleep(self._random.uniform(0.0, 0.6))
                self._kill(victims[number % len(victims)])
            self._send(self._events)
            wait_until("the end state is right", lambda: not self._faults(), pause_s=0.3)
            wait_until("all are acknowledged", lambda: not self._missing() or self._is_quiet(), pause_s=0.2)
            seconds = time.monotonic() - started_s
        acknowledged, missing = self._acknowledged(), self._missing()
        received = {
            int(line) for line in self._record.with_name("acknowledged.received").read_text().splitlines()
        }
        return EventKillsResult(
            sent=self._sent,
            kills=self.kills,
            seconds=seconds,
            lost=len(missing & received),
            forgotten=len(missing - received),
            doubled=len(acknowledged) - len(set(acknowledged)),
            faults=self._faults(),
        )

    def _processes(self) -> tuple[CeleryProcess, CeleryProcess, BridgeProcess]:
        folder, keys = self._setup.folder, self._setup.offering
        # In a minute more people leave than at a site in an hour, each out of two accounts: none of that shall wait.
        rules = {"max_removed_members": 2 * self._rounds, "max_removed_percent": 100}
        config = configuration(self._waldur, folder, membership_sync_backend="slurm", policy=rules, **keys)
        env = environment(
            config, self.redis.url, {"SLURM_CONF": self._setup.slurm.env["SLURM_CONF"], **SETTINGS}
        )
        command = ("-m", "rig.recording_bridge", str(self._record))
        return (
            CeleryProcess("worker", folder / "worker.log", env),
            CeleryProcess("beat", folder / "beat.log", env),
            BridgeProcess(folder / "bridge.log", env, *command),
        )

    def _kill(self, victim: Killable) -> None:
        victim.kill()
        self.kills += 1
        if isinstance(victim, CeleryProcess):
            victim.start(wait=False)
        else:
            victim.start()

    def _change_waldur(self, number: int) -> None:
        """Place an order or remove a member, and add one; Waldur publishes the events of these by itself."""
        waldur, project = self._waldur, self._waldur.seed.project_uuids[number % PROJECTS]
        if number < PROJECTS:
            self._orders.append(
                waldur.place_create_order(project, f"o{number}", limits={"cpu": 10}, slug=f"o{number}")
            )
        waldur.people.add_member(project, f"newcomer{number}", account=f"newcomer{number}")
        if number >= PROJECTS:
            waldur.people.remove_member(project, f"newcomer{number - PROJECTS}")

    def _send(self, until: int) -> None:
        """Send the numbered messages up to `until`, about objects that exist."""
        publisher, seed = self._waldur.publisher, self._waldur.seed
        assert publisher is not None
        for number in range(self._sent, until):
            kind = self._random.choice(KINDS)
            project = self._random.choice(seed.project_uuids)
            order = self._waldur.order(self._random.choice(self._orders))
            payload: dict[str, Any] = {
                "order": {"order_uuid": order.uuid, "order_state": order.state.value},
                "user_role": {"project_uuid": project, "project_name": "x"},
                "resource": {"resource_uuid": order.resource_uuid},
                "offering_user": {"offering_user_uuid": project, "action": "update"},
            }[kind]
            assert publisher.send(Message(kind, seed.offering_uuid, {**payload, NUMBER: number})) == 1
        self._sent = until

    def _acknowledged(self) -> list[int]:
        return [int(line) for line in self._record.read_text().splitlines()] if self._record.exists() else []

    def _missing(self) -> set[int]:
        return set(range(self._sent)) - set(self._acknowledged())

    def _is_quiet(self) -> bool:
        return self._record.exists() and time.time() - self._record.stat().st_mtime > self._setup.quiet_s

    def _faults(self) -> list[str]:
        return differences(self._setup.slurm, self._waldur, self._orders)


def differences(slurm: SlurmCluster, waldur: SimulatedWaldur, order_uuids: Sequence[str]) -> list[str]:
    """Return orders that are not done, and accounts with other members than Waldur wants."""
    orders = [(uuid, waldur.order(uuid).state.value) for uuid in order_uuids]
    found = [f"order {uuid} is {state}" for uuid, state in orders if state != "done"]
    rows = slurm.run("sacctmgr", "-nP", "show", "assoc", "format=account,user").stdout
    has: dict[str, set[str]] = {}
    for account, user in (row.split("|") for row in rows.splitlines()):
        has.setdefault(account, set()).update({user} if user else set())
    store = waldur.store
    with store.lock:
        names = {row.user_uuid: row.username for row in store.offering_users}
        wanted = {
            resource.backend_id: {names[g.user_uuid] for g in store.active_grants(resource.project_uuid)}
            for resource in store.resources
        }
    return found + [
        f"{account} has {sorted(has.get(account, ()))}, not {sorted(users)}"
        for account, users in wanted.items()
        if has.get(account) != users
    ]


def run(setup: KillSetup, *, events: int, rounds: int, seed: int = 1) -> EventKillsResult:
    scenario = Scenario(projects_per_customer=PROJECTS, members_per_project=MEMBERS)
    with SimulatedWaldur(scenario=scenario) as waldur:
        waldur.publish_to(setup.connect())
        return EventKillsRun(setup, waldur, events=events, rounds=rounds, seed=seed).run()


def on_rabbitmq(slurm: SlurmCluster, rabbitmq: RabbitMq, folder: Path) -> KillSetup:
    return KillSetup(slurm, folder, rabbitmq, lambda: rabbitmq_side(rabbitmq), stomp_keys(rabbitmq))


def on_mosquitto(slurm: SlurmCluster, mosquitto: Mosquitto, folder: Path, *, qos: int) -> KillSetup:
    def connect() -> EventBroker:
        return MqttBroker("127.0.0.1", mosquitto.port, qos=qos)

    return KillSetup(slurm, folder, mosquitto, connect, mqtt_keys(mosquitto), quiet_s=60.0)
