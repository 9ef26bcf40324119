# SPDX-License-Identifier: MIT
"""Bursts are a few tasks: on the real Redis, with what a worker does between."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.redis_server import RedisServer
from tests.tasks.scripts import lines_of

pytestmark = [pytest.mark.events, pytest.mark.floods]

SCRIPT = """
import sys
from agent.core.errors import BackendUnavailable, ClusterBusy, ConfigError
from agent.core.events import Job, JobKind, QueueUnavailable
from agent.run.results import PassReport, ResourceResult, Result
from tasks import membership
from tasks.queue import broker
from tasks.events import TaskQueue
from tasks.membership import events
offering, queue, send = sys.argv[1], "site.default", TaskQueue().send
client, work = broker.here().client, broker.queue()
def waiting(): return sum(client.llen(key) for key in client.keys("site.default*"))
def job(project): return Job(JobKind.MEMBERSHIP, offering, project_uuid=project)

for _ in range(50): send(job("a" * 32))
print("one project", waiting())
for n in range(3): send(job(f"{n:032x}"))
print("four projects", waiting())
for _ in range(100): send(Job(JobKind.ORDERS, offering)); send(Job(JobKind.MEMBERSHIP, offering))
print("and everything", waiting())
document = {"policy_uuid": "b" * 32, "resource_uuid": "c" * 32}
for _ in range(100): send(Job(JobKind.PERIODIC_LIMITS, offering, document=document))
send(Job(JobKind.PERIODIC_LIMITS, offering, document={**document, "timestamp": "later"}))
print("two different messages", waiting())
print("a forced sync", [send(Job(JobKind.REBUILD, offering)) for _ in range(2)], waiting())

client.flushall()
send(job("a" * 32))
key, asked = f"membership_sync:{offering}", f"membership_sync:events:{offering}"
with events.at_work(key, part=asked) as first:
    print("at work", first, send(job("b" * 32)), send(job("c" * 32)))
    events.request.update(args=[offering, []], delivery_info={"routing_key": queue, "priority": 3})
    print("next to it", events.run(offering, []))
    membership.whole.request.update(args=[offering], delivery_info={"routing_key": queue, "priority": 3})
    print("all next to a part", membership.whole.run(offering))
    print("which is due then", work.is_due(key, "membership_sync.whole"), work.is_due(key, "membership_sync.events"))
    print("before its end", waiting())
print("after its end", waiting())
with membership.whole.at_work(key):
    print("all, without a Waldur", membership._sync_all(offering).error.retryable)
    print("named while it went on", send(job("d" * 32)))

client.flushall()
def changed(): return work.changed(offering)
def left(): return sorted(entry.partition(":")[2][0] for entry in changed()) or "nothing"
def passed(retries, **values):
    for letter in "abc": send(job(letter * 32))
    before = changed()
    send(job("a" * 32))
    events.request.update(retries=retries)
    membership._cover(events, offering, before, PassReport("membership_sync", offering, "x", **values))
    found = left()
    work.cover(offering, changed())
    return found
again = [ResourceResult(letter * 32, Result.RETRY, error=ClusterBusy("x")) for letter in "bf"]
print("named again while it ran", passed(0))
print("what failed", passed(0, resources=again), "at the last attempt", passed(9, resources=again))
print("an outage", passed(0, error=BackendUnavailable("x")), "refused", passed(0, error=ConfigError("x")))
print("a whole pass is due", work.is_due(key, "membership_sync.whole"))
send(Job(JobKind.MEMBERSHIP, offering))
print("and now", work.is_due(key, "membership_sync.whole"))

client.flushall()
client.set("site-asked:s", '{"publishing": "of a producer that died"}', px=15_000)
sent = []
print("a claim is no task", work.ask("asked:s", lambda: sent.append(1)), len(sent))
try: work.ask("asked:t", lambda: 1 / 0)
except ZeroDivisionError: pass
print("what failed", work.ask("asked:t", lambda: sent.append(1)), len(sent))

client.config_set("maxmemory", "1")
try: send(job("d" * 32))
except QueueUnavailable as error: print("full:", str(error))
client.config_set("maxmemory", "0")
print("there is room again", send(job("d" * 32)))
"""


def test_bursts_and_their_doubles(redis_server: RedisServer, tmp_path: Path) -> None:
    assert lines_of(SCRIPT, redis_server, tmp_path) == [
        "one project 1",
        "four projects 1",
        "and everything 3",
        "two different messages 5",
        "a forced sync [True, False] 6",
        "at work True True False",
        "next to it another pass is under way and goes once more",
        "all next to a part another pass is under way and goes once more",
        "which is due then True False",
        "before its end 2",
        "after its end 3",
        "all, without a Waldur True",
        "named while it went on True",
        "named again while it ran ['a']",
        "what failed ['a', 'b', 'f'] at the last attempt ['a']",
        "an outage ['a', 'b', 'c'] refused ['a']",
        "a whole pass is due False",
        "and now True",
        "a claim is no task True 1",
        "what failed True 2",
        "full: the queue takes no tasks: command not allowed when used memory > 'maxmemory'.",
        "there is room again True",
    ]
