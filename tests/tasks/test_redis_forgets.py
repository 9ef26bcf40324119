# SPDX-License-Identifier: MIT
"""Redis that comes back empty, or as it was a while ago, has lost tasks whose messages are acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.redis_server import RedisServer
from tests.tasks.scripts import lines_of

pytestmark = pytest.mark.events

SCRIPT = """
import sys
from agent.config.model import Mode
from tasks.queue import broker, heartbeats
from tasks.events import TaskQueue
offering, modes, one, two = sys.argv[1], [Mode.ORDER_PROCESS], TaskQueue(), TaskQueue()
client = broker.here().client
def renewed(*queues):
    for queue in queues: queue.send_heartbeat(offering, modes)
    return sum(client.llen(key) for key in client.keys("site.default*"))

print("they begin, and go on", renewed(one, two, one, two))
old = client.get("site-" + heartbeats.COUNT + offering)
print("and on", renewed(one, two))
client.flushall()
print("it is empty", renewed(one, two), end=" ")
print(heartbeats.covered_modes(broker.here().store, offering) == {Mode.ORDER_PROCESS})
client.delete(*client.keys("site.default*"), *client.keys("site-asked:*"))
print("it was named once", renewed(one, two))
for _ in range(4): renewed(one)
client.set("site-" + heartbeats.COUNT + offering, old)
print("an old file", renewed(one))
"""


def test_everything_is_looked_at_where_redis_has_forgotten(redis_server: RedisServer, tmp_path: Path) -> None:
    assert lines_of(SCRIPT, redis_server, tmp_path) == [
        "they begin, and go on 0",
        "and on 0",
        "it is empty 2 True",
        "it was named once 0",
        "an old file 2",
    ]
