# SPDX-License-Identifier: MIT
"""Hosts whose clocks are ten minutes apart: a poll lives for its period, whoever's clock is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rig.redis_server import RedisServer
from tests.tasks.scripts import lines_of

pytestmark = pytest.mark.events

# The clock of a process is moved by what it adds to `time.time` and to `datetime.now`.
SCRIPT = """
import json, logging, sys, time
from datetime import datetime, timedelta
from celery.app import amqp
from celery.worker import request as requests
from kombu.transport.virtual import Message
logging.basicConfig(format="%(message)s", stream=sys.stdout, level=logging.WARNING)
real, moved = time.time, 0
time.time = lambda: real() + moved

class Moved(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + timedelta(seconds=moved)

from tasks import beat
from tasks.queue import broker, consumer
from tasks.app import app
amqp.datetime = consumer.datetime = requests.datetime = Moved
app.now = lambda: Moved.now(app.timezone)
app.loader.import_default_modules()
for of_beat, of_worker in ((0, 0), (-600, 0), (600, 0), (0, 600), (0, -600)):
    print("CASE", of_beat, of_worker)
    moved = of_beat
    scheduler = beat.SiteScheduler(app)
    entry = scheduler.schedule["order_process:" + sys.argv[1]]
    scheduler.apply_async(entry, advance=False)
    message = json.loads(broker.here().client.rpop("site.default"))
    left_s = datetime.fromisoformat(message["headers"]["expires"]).timestamp() - real()
    print("CASE lives for", round(left_s / 60), "min")
    moved = of_worker
    channel = app.connection_for_read().default_channel
    request = consumer.SiteRequest(Message(message, channel=channel), app=app, task=app.tasks[entry.task])
    print("CASE runs", not request.maybe_expire())
    request._expires = request.expires - timedelta(minutes=6)
    print("CASE and after its period", not request.maybe_expire())
    broker.here().client.flushall()
"""
APART = "this host's clock and Redis's are "


def test_a_poll_lives_for_its_period_by_redis_clock(redis_server: RedisServer, tmp_path: Path) -> None:
    """A worker that is behind takes it for longer: late is not wrong."""
    lines = lines_of(SCRIPT, redis_server, tmp_path)
    printed = [line.removeprefix("CASE ") for line in lines if line.startswith(("CASE", APART))]
    differences_s = [int(re.findall(r"\d+", line)[0]) for line in printed if line.startswith(APART)]
    assert min(differences_s) >= 590
    assert [APART if line.startswith(APART) else line for line in printed] == [
        *("0 0", "lives for 5 min", "runs True", "and after its period False"),
        *("-600 0", APART, "lives for 5 min", "runs True", "and after its period False"),
        *("600 0", APART, "lives for 5 min", "runs True", "and after its period False"),
        *("0 600", "lives for 5 min", APART, "runs True", "and after its period False"),
        *("0 -600", "lives for 5 min", "runs True", "and after its period True"),
    ]
