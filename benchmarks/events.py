# SPDX-License-Identifier: MIT
"""Events: ten thousand during kills, the latency from Waldur to the cluster, a flood of joins, and the footprint of the
bridge.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import redis
import yaml

from benchmarks.parts import Parts
from rig import event_flood, event_kills, known_users, large_tree
from rig.bridge_brokers import rabbitmq_side, stomp_keys
from rig.bridge_process import BridgeProcess
from rig.celery_process import CeleryProcess, environment
from rig.event_flood import Flood
from rig.event_kills import on_mosquitto, on_rabbitmq
from rig.mosquitto import Mosquitto
from rig.processes import processor_s, wait_until
from rig.rabbitmq import RabbitMq
from rig.site import configuration
from simulator.events.changes import Message
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

EVENTS, ROUNDS = 10_000, 30
MEASURED = 60
# So many people join in a minute, on an empty cluster and on one with so many associations of others.
FLOOD_JOINS, FLOOD_PROJECTS, FLOOD_S = 1000, 300, 60.0
FLOOD_OTHERS = (0, 10_000)
SINGLE_JOINS = 10
OFFERINGS = 50
IDLE_S = 20.0
TYPES = 6


def run(parts: Parts) -> Iterator[str]:
    rabbitmq, mosquitto = RabbitMq(parts.new_folder()), Mosquitto(parts.new_folder())
    rabbitmq.start()
    mosquitto.start()
    try:
        yield _kills(parts, "RabbitMQ", lambda folder: on_rabbitmq(parts.slurm, rabbitmq, folder))
        for qos in (0, 1):
            name = f"mosquitto at QoS {qos}"
            yield _kills(
                parts, name, lambda folder, qos=qos: on_mosquitto(parts.slurm, mosquitto, folder, qos=qos)
            )
            mosquitto.stop()
            mosquitto.forget()
            mosquitto.start()
        yield from _latency(parts, rabbitmq)
        for others in FLOOD_OTHERS:
            yield from floods(parts, rabbitmq, others)
        yield _footprint(parts, rabbitmq)
    finally:
        rabbitmq.stop()
        mosquitto.stop()


def _kills(parts: Parts, name: str, make: Callable[[Path], event_kills.KillSetup]) -> str:
    parts.slurm.reset()
    outcome = event_kills.run(make(parts.new_folder()), events=EVENTS, rounds=ROUNDS)
    return (
        f"{outcome.sent} events through {name}, {outcome.kills} kills of broker, Redis, bridge and worker: "
        f"{outcome.lost} lost between broker and queue, {outcome.forgotten} forgotten by the killed broker, "
        f"{outcome.doubled} doubled, {outcome.seconds:.0f} s, "
        f"faults: {outcome.faults or 'none'}"
    )


def _latency(parts: Parts, rabbitmq: RabbitMq) -> Iterator[str]:
    """Measure from a change in Waldur to the queue without a worker, and to the cluster with an idle one."""
    parts.slurm.reset()
    parts.redis.flush()
    folder = parts.new_folder()
    with SimulatedWaldur(scenario=Scenario(members_per_project=1)) as waldur:
        waldur.publish_to(rabbitmq_side(rabbitmq))
        config = configuration(waldur, folder, membership_sync_backend="slurm", **stomp_keys(rabbitmq))
        env = environment(config, parts.redis.url, {"SLURM_CONF": parts.slurm.env["SLURM_CONF"]})
        bridge = BridgeProcess(folder / "bridge.log", env).start()
        worker = CeleryProcess("worker", folder / "worker.log", env)
        try:
            yield _summary("event to queue", _to_queue(waldur, redis.Redis.from_url(parts.redis.url)))
            worker.start()
            yield _summary("order placed to order done (12 commands of the cluster)", _to_done(waldur))
            yield _summary("member joined to member on the cluster", _to_member(parts, waldur))
        finally:
            worker.stop()
            bridge.stop()


def _to_queue(waldur: SimulatedWaldur, client: Any) -> list[float]:
    publisher, seconds = waldur.publisher, []
    assert publisher is not None
    wait_until("the first full pass", lambda: client.llen("site.default:6") + client.llen("site.default") > 0)
    for _ in range(MEASURED):
        time.sleep(0.05)
        client.flushall()
        started_s = time.monotonic()
        publisher.send(Message("order", waldur.seed.offering_uuid, {"order_uuid": "a" * 32}))
        while not client.llen("site.default"):
            if time.monotonic() - started_s > 5:
                raise TimeoutError("an event did not reach the queue")
        seconds.append(time.monotonic() - started_s)
    return seconds


def _to_done(waldur: SimulatedWaldur) -> list[float]:
    seconds = []
    for number in range(MEASURED // 3):
        started_s = time.monotonic()
        order = waldur.place_create_order(waldur.seed.project_uuids[0], f"l{number}", slug=f"l{number}")
        wait_until("the order", lambda: waldur.order(order).state.value == "done", pause_s=0.005)  # noqa: B023
        seconds.append(time.monotonic() - started_s)
    return seconds


def _to_member(parts: Parts, waldur: SimulatedWaldur) -> list[float]:
    """Measure until the pass's journal has it: asking the cluster would slow the pass down."""
    seconds, project = [], waldur.seed.project_uuids[1]
    order = waldur.place_create_order(project, "team", slug="team")
    wait_until("the order", lambda: waldur.order(order).state.value == "done")
    # Of the site that works now.
    journals = parts.folder.glob("*/state/journal/journal.jsonl")
    journal = max(journals, key=lambda path: path.stat().st_mtime)
    for number in range(MEASURED // 3):
        time.sleep(1.0)
        started_s = time.monotonic()
        waldur.people.add_member(project, f"late{number}", account=f"late{number}")
        wait_until("the member", lambda: f"late{number} to a_team" in journal.read_text(), pause_s=0.01)  # noqa: B023
        seconds.append(time.monotonic() - started_s)
    return seconds


def floods(parts: Parts, rabbitmq: RabbitMq, others: int) -> Iterator[str]:
    """Measure single joins on a quiet site, then a flood with an order in the middle of it."""
    parts.slurm.reset()
    joining = [f"{Flood.prefix}{number}" for number in range(FLOOD_JOINS)]
    standing = [user for account in large_tree.others(others) for user in account.users]
    known_users.make_known(parts.new_folder(), [*standing, *joining])
    cluster = f"with {others:,} associations of others" if others else "on a cluster without others"
    with event_flood.site(
        parts.slurm,
        parts.redis,
        rabbitmq_side(rabbitmq),
        parts.new_folder(),
        projects=FLOOD_PROJECTS,
        others=others,
        **stomp_keys(rabbitmq),
    ) as made:
        single = sorted(
            event_flood.run(made, Flood(1, 1, prefix=f"single{number}_")).tail_s
            for number in range(SINGLE_JOINS)
        )
        yield f"{cluster}: one person who joins is in after {median(single):.1f} s, at most {single[-1]:.1f} s"
        result = event_flood.run(made, Flood(FLOOD_JOINS, FLOOD_PROJECTS, FLOOD_S, order=True))
        assert not made.differences()
        yield f"{cluster}: {FLOOD_JOINS} joins over {FLOOD_PROJECTS} projects in {FLOOD_S:.0f} s: {result.line()}"


def _summary(what: str, seconds: list[float]) -> str:
    last = quantiles(seconds, n=100)[-1]
    return f"{what}: median {1000 * median(seconds):.0f} ms, 99th percentile {1000 * last:.0f} ms, {len(seconds)} times"


def _footprint(parts: Parts, rabbitmq: RabbitMq) -> str:
    """Measure the bridge of many offerings, each with all types, of one Waldur user."""
    folder = parts.new_folder()
    with SimulatedWaldur() as waldur:
        waldur.publish_to(rabbitmq_side(rabbitmq))
        config = configuration(waldur, folder, membership_sync_backend="slurm", **stomp_keys(rabbitmq))
        document = yaml.safe_load(config.read_text())
        usual, store = document["offerings"][0], waldur.store
        with store.lock:
            offering = store.offerings[waldur.seed.offering_uuid]
            uuids = [f"{number:032x}" for number in range(1, OFFERINGS)]
            for uuid in uuids:
                store.offerings.add(replace(offering, uuid=uuid))
        document["offerings"] += [
            {**usual, "name": uuid[-4:], "waldur_offering_uuid": uuid} for uuid in uuids
        ]
        config.write_text(yaml.safe_dump(document))
        bridge = BridgeProcess(folder / "bridge.log", environment(config, parts.redis.url)).start()
        try:
            wait_until("all queues", lambda: len(store.queues) == OFFERINGS * TYPES)
            time.sleep(10)
            before_s = processor_s(bridge.process.pid)
            time.sleep(IDLE_S)
            used_s = processor_s(bridge.process.pid) - before_s
            status = Path(f"/proc/{bridge.process.pid}/status").read_text()
        finally:
            bridge.stop()
    resident = next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS")) / 1024
    threads = next(int(row.split()[1]) for row in status.splitlines() if row.startswith("Threads"))
    return (
        f"the bridge of {OFFERINGS} offerings and {OFFERINGS * TYPES} queues: {resident:.0f} MiB, {threads} threads, "
        f"{100 * used_s / IDLE_S:.1f} % of a processor when idle"
    )
