# SPDX-License-Identifier: MIT
"""Messages that a person puts into the queue by hand: each is refused in words and kept, and the queue goes on."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from agent.state.dead_letters import FOLDER, listed
from agent.state.store import Store
from rig.celery_process import REPOSITORY, CeleryProcess, environment
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur
from tasks.limits import STARTS_AT_MOST
from tests.tasks.emulated import EmulatedSlurm, settings, variables

pytestmark = pytest.mark.real_part
# Every second one has ended workers of Celery 5.6, some of them one after the other.
INJECT = """
import base64, json, platform, sys
from tasks.queue import broker
from tasks.app import app
offering, order = sys.argv[1:]
client, queue = broker.here().client, "site.default"
DEEP = "[" * 20_000 + "]" * 20_000
poll = {"task": "membership_sync.poll", "id": "y", "lang": "py"}
def packed(text):
    return base64.b64encode(text.encode()).decode()
def send(name, *args, **options):
    app.send_task(name, args, queue=queue, **options)
def message(body="e30=", headers={}, **properties):
    delivery = {"exchange": "", "routing_key": queue}
    known = {"delivery_mode": 2, "delivery_info": delivery, "delivery_tag": str(len(body)), "body_encoding": "base64"}
    return {"body": body, "content-type": "application/json", "content-encoding": "utf-8", "headers": headers,
            "properties": {**known, **properties}}
raw = [
    "garbage", b"\\xff\\xfe", "[1, 2]", '{"a": 1}', '{"body": "e30=", "headers": null, "properties": null}', message(),
    message("e30", correlation_id="x", reply_to=""),
    message("bm9qc29u", {"task": "report.poll", "id": "x", "lang": "py"}, correlation_id="x", reply_to=""),
    message("%%%", {"task": "report.poll", "id": "x", "lang": "py"}, correlation_id="x", reply_to=""),
    DEEP, '{"a":' * 20_000, json.dumps(message())[:-1] + ', "more": ' + "[" * 900 + "]" * 900 + "}",
    message(packed(DEEP + " "), {"task": "report.poll", "id": "x", "lang": "py"}, correlation_id="x", reply_to=""),
    message(packed(f'[["{offering}", {DEEP[19_100:-19_100]}], {{}}, {{}}]'), poll, correlation_id="y", reply_to=""),
    json.dumps(message())[:-1] + ', "more": {"__type__": "uuid", "__value__": 1}}',
    json.dumps(message())[:-1] + ', "more": {"__type__": [], "__value__": 1}}',
]
for each in raw:
    client.lpush(queue, each if isinstance(each, str | bytes) else json.dumps(each))
send("events.rotate_key", offering, order, serializer="yaml")
app.conf.accept_content = ["json", "pickle"]
send("events.rotate_key", offering, order, serializer="pickle")
send("os.system", "reboot")
send("events.rotate_key", "f" * 32, order)
send("events.rotate_key", offering, "a" * 8_000_000)
send("order_process.events", offering)
# Among what a killed worker of this name had not acknowledged.
left = f"unacked:celery@{platform.node()}"
for tag, entry in enumerate(("garbage", DEEP, "[1]", "0", '{"a": 1}', '[[], "", ""]', b"\\xff")):
    client.hset(left, str(tag), entry)
client.hset(left, b"\\xff", "garbage too")
"""

SEND = """
import sys
from tasks.app import app
app.send_task("order_process.events", sys.argv[1:], queue="site.default")
"""
# The hook of a site, which kills the process that asks it.
ENDS_WORKER = """#!/bin/sh
if [ -e "$2" ]; then echo '{"decision": "accept"}'; exit; fi
echo begun >> "$1"
kill -9 $PPID
"""

# To all workers that run, as Celery's remote control does. The number of workers that it reached comes back.
CONTROL = """
import base64, json, sys
from tasks.queue import broker
from tasks.app import app
client = broker.here().client
DEEP = "[" * 20_000 + "]" * 20_000
less_deep = DEEP[19_100:-19_100]
def message(text, headers={}):
    body = base64.b64encode(text.encode()).decode()
    delivery = {"exchange": "", "routing_key": ""}
    return json.dumps({"body": body, "content-type": "application/json", "content-encoding": "utf-8",
            "headers": headers, "properties": {"delivery_mode": 2, "delivery_info": delivery,
            "delivery_tag": str(len(body)), "body_encoding": "base64"}})
ping = {"method": "ping", "arguments": {}, "destination": None}
for text in (
    "garbage", b"\\xff", "[1]", "{}", "0", DEEP, '{"a":' * 20_000, less_deep, '{"body": %s}' % less_deep,
    message(DEEP), message("[1]"), message(json.dumps({**ping, "method": [1]})),
    message(json.dumps(ping).replace("{}", less_deep)), message(json.dumps(ping), {"clock": "x"}),
    message(json.dumps(ping)),
):
    assert client.publish("/0.celery.pidbox", text) == 1, text[:80]
print(app.control.ping(timeout=600, limit=1))
"""


def test_no_message_of_the_control_channel_ends_a_worker(redis_server: RedisServer, tmp_path: Path) -> None:
    slurm = EmulatedSlurm(tmp_path)
    redis_server.flush()
    with SimulatedWaldur() as waldur:
        env = environment(
            configuration(waldur, tmp_path, backend=settings(slurm)), redis_server.url, variables(slurm)
        )
        worker = CeleryProcess("worker", tmp_path / "worker.log", env)
        try:
            worker.start()
            answer = subprocess.run(
                [python(), "-c", CONTROL],
                env=env, cwd=REPOSITORY, check=True, capture_output=True, text=True,
            )  # fmt: skip
            assert "'ok': 'pong'" in answer.stdout
            assert worker.process.poll() is None
        finally:
            worker.stop()
            print(worker.output())
    letters = listed(Store(tmp_path / "state" / FOLDER))
    assert [letter.reason.partition(" (")[0] for letter in letters] == [
        *["it is no JSON"] * 2,
        *["it has not the form of a message"] * 3,
        *["it is nested in more than 64 levels"] * 4,
        "it cannot be read",
        "it is no command",
        "it cannot be read",
        "it is no command",
    ]
    assert "Unrecoverable" not in worker.output()


def test_each_is_refused_and_kept_and_the_queue_goes_on(redis_server: RedisServer, tmp_path: Path) -> None:
    slurm = EmulatedSlurm(tmp_path)
    redis_server.flush()
    with SimulatedWaldur() as waldur:
        env = environment(
            configuration(waldur, tmp_path, backend=settings(slurm)), redis_server.url, variables(slurm)
        )
        order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
        arguments = (waldur.seed.offering_uuid, order)
        subprocess.run([python(), "-c", INJECT, *arguments], env=env, cwd=REPOSITORY, check=True)
        # One process: of two copies at once one would come back later.
        alone = ("--concurrency", "1")
        worker = CeleryProcess("worker", tmp_path / "worker.log", env, *alone)
        try:
            worker.start()
            wait_until("the order behind them is done", lambda: waldur.order(order).state.value == "done")
            assert worker.process.poll() is None
        finally:
            worker.stop()
            print(worker.output())
    letters = listed(Store(tmp_path / "state" / FOLDER))
    left = [letter for letter in letters if letter.source.endswith("not acknowledged")]
    assert len(left) >= 5
    letters = [letter.reason for letter in letters if letter not in left]
    assert [reason.partition(" (")[0] for reason in letters] == [
        "it is no JSON",
        "it is no JSON",
        *["it has not the form of a message"] * 3,
        "it is no task",
        "it has not the form of a message",
        "it cannot be read",
        "it cannot be read",
        *["it is nested in more than 64 levels"] * 3,
        *["it cannot be read"] * 2,
        *["it is no JSON"] * 2,
        "ContentDisallowed: Refusing to deserialize untrusted content of type yaml",
        "ContentDisallowed: Refusing to deserialize untrusted content of type pickle",
        "there is no task 'os.system' here",
    ]
    said = worker.output()
    assert said.count(" is not run: ") == len(letters) + len(left) + 1, "one more is of its arguments"
    assert f"offering {'f' * 32} is not in the configuration" in said
    assert redis_server.command("EXISTS site.default") == b":0\r\n"
    assert redis_server.command(f"EXISTS unacked:celery@{platform.node()}") == b":0\r\n"


def test_a_task_that_ends_its_worker_is_begun_five_times_and_what_is_logged_is_what_happened(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    slurm = EmulatedSlurm(tmp_path)
    redis_server.flush()
    begun, decide = tmp_path / "begun", tmp_path / "decide"
    decide.write_text(ENDS_WORKER)
    decide.chmod(0o700)
    with SimulatedWaldur() as waldur:
        config = configuration(
            waldur,
            tmp_path,
            backend=settings(slurm),
            order_hook={"command": [str(decide), str(begun), str(tmp_path / "harmless")]},
        )
        env = environment(config, redis_server.url, variables(slurm))
        order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
        send = [python(), "-c", SEND, waldur.seed.offering_uuid]
        alone = ("--concurrency", "1")
        worker = CeleryProcess("worker", tmp_path / "worker.log", env, *alone)
        try:
            worker.start()
            subprocess.run(send, env=env, cwd=REPOSITORY, check=True)
            wait_until("it is given up", lambda: "is not begun again: look for" in worker.output())
            (tmp_path / "harmless").touch()
            subprocess.run(send, env=env, cwd=REPOSITORY, check=True)
            wait_until("another task does the order", lambda: waldur.order(order).state.value == "done")
        finally:
            worker.stop()
            print(worker.output())
    assert begun.read_text().splitlines() == ["begun"] * STARTS_AT_MOST
    (letter,) = listed(Store(tmp_path / "state" / FOLDER))
    assert letter.reason == "order_process.events was begun 5 times and ended its worker each time"
    kept = redis_server.command("KEYS site-begun:*")
    assert kept.startswith(b"*1\r\n"), "the start of what has ended is forgotten"
