# SPDX-License-Identifier: MIT
"""What `status` says of queues, workers, retries and beat of a cluster that runs."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection

from agent.config.secret import SecretUrl
from rig.celery_process import CeleryProcess, environment
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.site import settings_of
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from tasks.queue import inspection, kinds
from tasks.queue.inspection import BrokerAway
from tests.agent.cli.operator_site import run_program
from tests.tasks.conftest import Start
from tests.tasks.emulated import EmulatedSlurm
from tests.tasks.scripts import patient


@pytest.fixture
def slurm(tmp_path: Path) -> EmulatedSlurm:
    return EmulatedSlurm(tmp_path)


def test_workers_queues_beat_and_the_next_try_of_an_order(
    start: Start, config: Path, waldur: SimulatedWaldur, redis_server: RedisServer
) -> None:
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "One", limits={"cpu": 10})
    waldur.inject(Fault(method="POST", path="set_backend_id", status=503, times=None))
    start("worker", "-n", "one@here", "-c", "1", minutes=5)
    start("beat", minutes=5)
    env = environment(config, redis_server.url)

    seen: list[dict[str, Any]] = []

    def is_seen() -> bool:
        said = run_program("status", "--json", "-c", str(config), env=env)
        seen.append(said.document())
        broker = seen[-1]["broker"]
        is_whole = broker["scheduled"] and all(worker["queues"] for worker in broker["workers"])
        return bool(is_whole and seen[-1]["offerings"][0]["stuck_orders"])

    wait_until("the order to come back", is_seen, log=lambda: str(seen[-1]))
    found = seen[-1]
    broker = found["broker"]
    assert (broker["problem"], [w["name"] for w in broker["workers"]]) == ("", ["one@here"])
    assert [(q["name"], q["workers"]) for q in broker["queues"]] == [("site.default", ["one@here"])]
    assert len(broker["beats"]) == 1
    (stuck,) = found["offerings"][0]["stuck_orders"]
    assert (stuck["uuid"], stuck["result"]) == (order, "retry")
    assert stuck["next_by"] == "a retry of order_process.poll on one@here"
    assert stuck["next_try"] == broker["scheduled"][0]["due"]
    states = {
        "broker": "warning",
        "workers": "ok",
        "worker settings": "ok",
        "beat": "ok",
        "passes": "problem",
    }

    said: list[str] = []

    def is_found() -> bool:
        doctor = run_program("doctor", "--json", "-c", str(config), env=env)
        said.append(doctor.out)
        checks = doctor.document()["checks"]
        return states.items() <= {each["check"]: each["state"] for each in checks}.items()

    wait_until("all have answered the doctor", is_found, log=lambda: said[-1])


def test_a_broker_that_says_nothing_is_given_up(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "CONNECT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = SecretUrl(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        with pytest.raises(BrokerAway, match=f"the broker {url} does not answer"):
            inspection.connected(replace(settings_of(config), broker_url=url))


def test_the_workers_of_each_kind_of_broker_are_asked(broker_url: str, config: Path, tmp_path: Path) -> None:
    env, names = environment(config, broker_url), ["one@here", "two@here"]
    with ExitStack() as stack:
        for name in names:
            worker = CeleryProcess("worker", tmp_path / f"{name}.log", env, "-n", name, "-c", "1")
            stack.callback(worker.start().stop)
        seen: list[dict[str, Any]] = []

        def is_seen() -> bool:
            seen.append(run_program("status", "--json", "-c", str(config), env=env).document()["broker"])
            return [worker["queues"] for worker in seen[-1]["workers"]] == [["site.default"]] * 2

        wait_until("both have answered", is_seen, log=lambda: str(seen[-1]))
        with Connection(broker_url) as connection:
            mailbox = inspection.WORKERS(connection)
            received = kinds.of(connection).receivers(lambda: mailbox.abcast("ping"))
    found = seen[-1]
    assert found["problem"] == ""
    assert found["workers"] == [{"name": n, "processes": 1, "queues": ["site.default"]} for n in names]
    assert [(q["name"], q["workers"]) for q in found["queues"]] == [("site.default", names)]
    # So many answers are waited for, and for no other after them.
    assert received == (2 if broker_url.startswith("redis") else None)


def test_doctor_opens_as_many_connections_to_redis_as_status(config: Path, redis_server: RedisServer) -> None:
    redis_server.flush()
    env = environment(config, redis_server.url)

    def connections(command: str) -> int:
        begun = _connections(redis_server)
        patient(command, "--json", "-c", str(config), env=env)
        # The question before is one itself.
        return _connections(redis_server) - begun - 1

    assert connections("doctor") == connections("status") > 0


def test_doctor_leaves_nothing_in_redis(config: Path, redis_server: RedisServer) -> None:
    redis_server.flush()
    env = environment(config, redis_server.url)

    def keys() -> list[bytes]:
        return sorted(redis_server.command("KEYS *").split())

    patient("status", "--json", "-c", str(config), env=env)
    before = keys()
    for _ in range(2):
        patient("doctor", "--json", "-c", str(config), env=env)
    assert keys() == before


def test_doctor_sends_a_message_through_each_kind_of_broker(broker_url: str, config: Path) -> None:
    env = environment(config, broker_url)
    checks = patient("doctor", "--json", "-c", str(config), env=env).document()["checks"]
    found = [each["found"] for each in checks if each["check"] == "broker"]
    assert any("a message came back" in said for said in found), found


def _connections(server: RedisServer) -> int:
    said = server.command("INFO stats").decode()
    return int(said.partition("total_connections_received:")[2].split()[0])
