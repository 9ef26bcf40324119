# SPDX-License-Identifier: MIT
"""Users of Redis as `examples/redis-users.acl` has them: each role does its work, and reads no other role's keys."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from rig.celery_process import REPOSITORY, CeleryProcess, environment
from rig.processes import accepts, free_ports, wait_until
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur
from tests.tasks.emulated import EmulatedSlurm, settings, variables

pytestmark = pytest.mark.real_part
USERS = REPOSITORY / "examples" / "redis-users.acl"
BRIDGE = """
import sys
from agent.config.model import Mode
from agent.core.events import Job, JobKind
from tasks.events import TaskQueue
offering, queue = sys.argv[1], TaskQueue()
queue.send_heartbeat(offering, [Mode.MEMBERSHIP_SYNC])
# The second adds to the first where that still waits.
print(any([queue.send(Job(JobKind.MEMBERSHIP, offering, project_uuid=project)) for project in ("", "a" * 32)]))
"""
OPERATOR = """
import sys
from agent.core.periods import Month
from agent.run.backfill.month import LoadOptions
from tasks import backfill, current
from tasks.queue import broker, inspection, month_queue
from tasks.queue.month_status import MonthState, MonthStatus, RunStatus
inspection.CONNECT_S = inspection.ANSWER_S = 600
assert month_queue.unavailable_reason(current.settings()) == ""
status = RunStatus(broker.here().store, "0af3")
status.write("2024-01", MonthStatus(MonthState.QUEUED))
backfill.enqueue_month(sys.argv[1], Month.parse("2024-01"), "0af3", LoadOptions())
seen = inspection.look(current.settings())
print(len(status.read(["2024-01"])), seen.problem, len(seen.workers), len(seen.beats), len(seen.covered))
"""
# A user, and what it may not do: keys and commands of others.
REFUSED = [
    ("worker", ("LPUSH", "site.other", "x")),
    ("worker", ("BRPOP", "site.other:3", 1)),
    ("worker", ("HKEYS", "unacked:celery@elsewhere")),
    ("worker", ("SET", "site-heartbeat:x", "order_process")),
    ("beat", ("BRPOP", "site.default", 1)),
    ("beat", ("DEL", "site-work:x")),
    ("bridge", ("HGET", "unacked:celery@elsewhere", "x")),
    ("bridge", ("SET", "site-polled:x", "1")),
    ("bridge", ("DEL", "site-begun:x")),
    ("flower", ("LPUSH", "site.default", "x")),
    ("flower", ("GET", "site-work:x")),
    ("operator", ("SET", "site-work:x", "1")),
    *((role, ("FLUSHALL",)) for role in ("worker", "beat", "bridge", "flower", "operator")),
    *((role, ("CONFIG", "GET", "*")) for role in ("worker", "beat", "bridge", "flower", "operator")),
    *((role, ("ACL", "LIST")) for role in ("worker", "beat", "bridge", "flower", "operator")),
    *((role, ("KEYS", "*")) for role in ("worker", "beat", "bridge", "flower", "operator")),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path / "redis")
    made.start()
    yield made
    made.stop()


def with_users(server: RedisServer) -> Any:
    """Give Redis the users of the file, and return a client of one who may do all."""
    first = redis.Redis.from_url(server.url)
    everything = {"commands": ["+@all"], "keys": ["*"], "channels": ["*"]}
    first.acl_setuser("admin", enabled=True, nopass=True, **everything)
    admin = redis.Redis.from_url(server.url, username="admin", password="any")
    rows = [line.split() for line in USERS.read_text().splitlines() if line.startswith("user ")]
    assert rows[0] == ["user", "default", "off"]
    for _, name, *rules in rows:
        here = [rule.replace("QUEUE", "default").replace("HOST", socket.gethostname()) for rule in rules]
        admin.execute_command("ACL", "SETUSER", name, *here)
    return admin


def test_each_role_works_with_its_own_user_and_reads_no_other_roles_keys(
    server: RedisServer, tmp_path: Path
) -> None:
    slurm, admin = EmulatedSlurm(tmp_path), with_users(server)
    (port,) = free_ports(1)

    def url(role: str) -> str:
        return f"redis://{role}:CHANGE-{role}@127.0.0.1:{server.port}/0"

    with SimulatedWaldur() as waldur:
        order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
        config = configuration(
            waldur, tmp_path, backend=settings(slurm), membership_sync_backend="slurm", stomp_enabled=True
        )

        def env(role: str, **more: str) -> dict[str, str]:
            return environment(config, url(role), {**variables(slurm), **more})

        logins = {"FLOWER_BASIC_AUTH": "a:b", "FLOWER_PORT": str(port)}
        running = [
            CeleryProcess(role, tmp_path / f"{role}.log", env(role, **logins)).start(wait=False)
            for role in ("worker", "beat", "flower")
        ]
        worker = running[0]
        try:
            wait_until("the worker is ready", lambda: " ready." in worker.output())
            wait_until("beat runs", lambda: any(admin.scan_iter(match="site-beat:*")))
            for role, script, said in (("bridge", BRIDGE, "True"), ("operator", OPERATOR, "1  1 1 1")):
                command = [python(), "-c", script, waldur.seed.offering_uuid]
                done = subprocess.run(
                    command, env=env(role), cwd=REPOSITORY, capture_output=True, text=True, check=False
                )
                assert done.stdout.strip() == said, done.stderr
            changed = f"site-changed:{waldur.seed.offering_uuid}"
            wait_until("what events named is covered", lambda: not admin.exists(changed))
            wait_until("the order is done", lambda: waldur.order(order).state.value == "done")
            wait_until("Flower listens", lambda: accepts(port))
            wait_until("Flower sees the worker", lambda: "celery@" in seen_by_flower(port))
            worker.kill()
            worker.start()
            refused = [(entry["username"], entry["object"], entry["context"]) for entry in admin.acl_log()]
            # From 7.2 on Redis would get the library's name, which is not needed; 7.0 refuses such a rule.
            assert [each for each in refused if each[1] != "client|setinfo"] == []
        finally:
            for process in reversed(running):
                process.end()
                print(process.output())
    for role, command in REFUSED:
        client = redis.Redis.from_url(url(role))
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command)


def seen_by_flower(port: int) -> str:
    login = b64encode(b"a:b").decode()
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/workers?refresh=1", headers={"Authorization": f"Basic {login}"}
    )
    with urllib.request.urlopen(asked, timeout=600) as answer:
        return " ".join(json.loads(answer.read()))
