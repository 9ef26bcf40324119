# SPDX-License-Identifier: MIT
"""Redis that comes back empty, or as it was a while ago, has lost tasks whose messages are acknowledged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agent.sim.server import SimulatedWaldur
from tests.cluster.celery_process import environment
from tests.real.redis_server import RedisServer
from tests.site import configuration

# Runs with the settings of a real process: Celery reads them when tasks are imported.
SCRIPT = """
import sys
from agent.config.model import Mode
from tasks import broker, signs
from tasks.events import TaskQueue
offering, modes, one, two = sys.argv[1], [Mode.ORDER_PROCESS], TaskQueue(), TaskQueue()
client = broker.client()
def renewed(*queues):
    for queue in queues: queue.renew(offering, modes)
    return sum(client.llen(key) for key in client.keys("site.default*"))

print("they begin, and go on", renewed(one, two, one, two))
old = client.get(signs.COUNT + offering)
print("and on", renewed(one, two))
client.flushall()
print("it is empty", renewed(one, two), signs.of(offering) == {Mode.ORDER_PROCESS})
client.delete(*client.keys("site.default*"), *client.keys("site-event:*"))
print("it was told of once", renewed(one, two))
for _ in range(4): renewed(one)
client.set(signs.COUNT + offering, old)
print("an old file", renewed(one))
"""


def test_everything_is_looked_at_where_redis_has_forgotten(redis_server: RedisServer, tmp_path: Path) -> None:
    redis_server.flush()
    with SimulatedWaldur() as waldur:
        config = configuration(waldur, tmp_path, membership_sync_backend="slurm")
        offering = waldur.seed.offering_uuid
    env = {**os.environ, **environment(config, redis_server.url)}
    command = [sys.executable, "-c", SCRIPT, offering]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "they begin, and go on 0",
        "and on 0",
        "it is empty 2 True",
        "it was told of once 0",
        "an old file 2",
    ]
