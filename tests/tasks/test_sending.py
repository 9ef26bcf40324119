# SPDX-License-Identifier: MIT
"""A task that was sent is one that RabbitMQ has: it does not count as sent before."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rig.celery_process import REPOSITORY, environment
from rig.rabbitmq import ADMIN, PASSWORD, RabbitMq
from rig.site import configuration
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur

pytestmark = pytest.mark.real_part
# Sends a task, and one for each line that it reads; for the first of these it does not wait long to be confirmed.
SEND = """
import sys
from agent.core.events import Job, JobKind
from tasks.app import app
from tasks.beat import SiteScheduler
from tasks.events import TaskQueue
from tasks.queue import kinds

def send_event(number):
    TaskQueue().send(Job(JobKind.KEY_ROTATION, sys.argv[2], request_uuid=f"{number:032x}"))

def send_poll(number):
    scheduler.apply_async(list(scheduler.schedule.values())[number], scheduler.producer)

send = {"event": send_event, "poll": send_poll}[sys.argv[1]]
scheduler = SiteScheduler(app)
send(0)
print("sent", flush=True)
sys.stdin.readline()
kinds.CONFIRMED_WITHIN_S = 1
try:
    send(1)
    print("sent", flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
kinds.CONFIRMED_WITHIN_S = 600
sys.stdin.readline()
send(2)
print("sent", flush=True)
"""


@pytest.mark.parametrize(("what", "error"), [("event", "QueueUnavailable"), ("poll", "SchedulingError")])
def test_a_task_that_rabbitmq_does_not_confirm_counts_as_not_sent(
    rabbitmq: RabbitMq, tmp_path: Path, what: str, error: str
) -> None:
    url = f"amqp://{ADMIN}:{PASSWORD}@127.0.0.1:{rabbitmq.ports['amqp']}//"
    with SimulatedWaldur() as waldur:
        config = configuration(waldur, tmp_path, membership_sync_backend="slurm")
        env = environment(config, url)
        argv = [python(), "-c", SEND, what, waldur.seed.offering_uuid]
        with subprocess.Popen(
            argv, env=env, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as sender:
            assert sender.stdin is not None and sender.stdout is not None
            assert sender.stdout.readline() == "sent\n"
            rabbitmq.freeze()
            try:
                print(file=sender.stdin, flush=True)
                said = sender.stdout.readline()
            finally:
                rabbitmq.resume()
            print(file=sender.stdin, flush=True)
            assert sender.stdout.readline() == "sent\n"
    assert said.startswith(error) and "did not answer within 1 s" in said
