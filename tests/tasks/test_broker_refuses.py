# SPDX-License-Identifier: MIT
"""A broker that is away as a process begins, or that refuses it: callers meet the errors they expect."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection

from rig.celery_process import environment
from rig.rabbitmq import ADMIN, PASSWORD, RabbitMq
from rig.site import configuration
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur
from tasks.queue.kinds import MemoryBroker, RabbitBroker
from tests.tasks.scripts import patient

NOWHERE = "redis://127.0.0.1:1/0"
ASK = """
import sys
from agent.core.events import QueueUnavailable
from tasks import beat, current
from tasks.events import TaskQueue
from tasks.queue import broker, month_queue
try:
    TaskQueue().send_heartbeat(sys.argv[1], [])
except QueueUnavailable as error:
    print(error)
print(beat._covered_modes(sys.argv[1]), broker.here().urgent_waits("q", 9), broker.here().clock_offset_s())
print(month_queue.unavailable_reason(current.settings()))
"""


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    with SimulatedWaldur() as waldur:
        yield configuration(waldur, tmp_path, membership_sync_backend="slurm")


def test_a_redis_that_is_away_from_the_start_is_an_unavailable_queue(config: Path) -> None:
    env = environment(config, NOWHERE)
    done = subprocess.run(
        [python(), "-c", ASK, "a" * 32], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    heartbeat, asked, months = done.stdout.splitlines()
    assert heartbeat.startswith("Redis does not answer: Error 111 connecting to 127.0.0.1:1")
    assert asked == "frozenset() False 0.0"
    assert months.startswith(f"the broker {NOWHERE} does not answer (")


@pytest.mark.real_part
@pytest.mark.parametrize("login", [f"{ADMIN}:wrong", f"nobody:{PASSWORD}"])
def test_a_rabbitmq_that_refuses_the_login_is_a_broker_that_does_not_answer(
    rabbitmq: RabbitMq, config: Path, login: str
) -> None:
    url = f"amqp://{login}@127.0.0.1:{rabbitmq.ports['amqp']}//"
    env = environment(config, url)
    status = patient("status", "--json", "-c", str(config), env=env)
    problem = status.document()["broker"]["problem"]
    assert (status.code, "does not answer (" in problem, "ACCESS_REFUSED" in problem) == (0, True, True)
    metrics = patient("metrics", "-c", str(config), env=env)
    assert metrics.code == 0 and 'waldur_site_source_up{source="broker"} 0.0' in metrics.out
    doctor = patient("doctor", "--json", "-c", str(config), env=env).document()
    (found,) = [each for each in doctor["checks"] if each["check"] == "broker"]
    assert "ACCESS_REFUSED" in found["found"] and "password" in found["remedy"]


@pytest.mark.real_part
def test_a_queue_that_may_not_be_looked_at_is_not_an_empty_one(rabbitmq: RabbitMq) -> None:
    url = f"amqp://{ADMIN}:{PASSWORD}@127.0.0.1:{rabbitmq.ports['amqp']}//"
    with Connection(url) as other, Connection(url) as connection:
        other.default_channel.queue_declare("test-exclusive", exclusive=True)
        broker = RabbitBroker(connection)
        assert broker.waiting("test-exclusive").messages is None
        assert broker.waiting("test-nowhere").messages == 0


def test_a_queue_that_does_not_exist_yet_in_memory_is_empty() -> None:
    with Connection("memory://") as connection:
        assert MemoryBroker(connection).waiting("test-nowhere").messages == 0
