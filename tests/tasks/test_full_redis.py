# SPDX-License-Identifier: MIT
"""A Redis whose disk or memory is full: the work goes on, and no process keeps a key from itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from rig.processes import wait_until
from rig.redis_server import RedisServer
from tasks.queue.stores import RedisStore
from tasks.queue.work import WorkQueue

pytestmark = pytest.mark.real_part
KEY = "k"
RUN = {"task": "t", "args": ["o"], "queue": "q", "priority": 3}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


def filled(client: redis.Redis, full: str) -> Callable[[], None]:
    """Let Redis take no records, and return what lets it take them again."""
    if full == "memory":
        client.config_set("maxmemory", 1)
        return lambda: client.config_set("maxmemory", 0)
    # Redis takes no change after a copy of its data could not be written.
    client.config_set("stop-writes-on-bgsave-error", "yes")
    client.config_set("save", "3600 1")
    place = {**client.config_get("dir"), **client.config_get("dbfilename")}
    copy = Path(place["dir"], place["dbfilename"])
    copy.mkdir()

    def copied(status: str) -> None:
        client.bgsave()
        wait_until(
            f"a copy: {status}", lambda: client.info("persistence")["rdb_last_bgsave_status"] == status
        )

    def mend() -> None:
        copy.rmdir()
        copied("ok")

    copied("err")
    return mend


@pytest.mark.parametrize("full", ["disk", "memory"])
def test_a_key_is_free_and_what_was_asked_is_sent_once_a_full_redis_has_room(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, full: str
) -> None:
    client, sent = redis.Redis.from_url(server.url), []
    store = RedisStore(client, "worker@a")
    token = WorkQueue(store, sent.append).take(KEY)
    assert token is not None and WorkQueue(store, sent.append).take(KEY, RUN) is None
    mend = filled(client, full)
    waited_s: list[float] = []
    monkeypatch.setattr(time, "sleep", waited_s.append)
    WorkQueue(store, sent.append).done(KEY, token)
    monkeypatch.undo()
    assert 1 < sum(waited_s) < 5, "no worker waits for a disk"
    assert "the end of k cannot be recorded: other processes leave it alone" in caplog.text
    with WorkQueue(store, sent.append).at_work(KEY) as is_ours:
        assert is_ours, "goes on while it is full"
    mend()
    with WorkQueue(store, sent.append).at_work(KEY) as is_ours:
        assert is_ours and sent == []
    assert sent == [RUN]
    assert not client.exists(f"site-work:{KEY}")


@pytest.mark.parametrize("full", ["disk", "memory"])
def test_a_redis_that_is_full_for_a_moment_is_waited_for(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    client, sent = redis.Redis.from_url(server.url), []
    queue = WorkQueue(RedisStore(client, "worker@a"), sent.append)
    with queue.at_work(KEY):
        assert queue.take(KEY, RUN) is None
        mend, really = filled(client, full), time.sleep

        def sleep(_: float) -> None:
            monkeypatch.setattr(time, "sleep", really)
            mend()

        monkeypatch.setattr(time, "sleep", sleep)
    assert sent == [RUN]
    assert WorkQueue(RedisStore(client, "worker@b"), sent.append).take(KEY) is not None
