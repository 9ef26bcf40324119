# SPDX-License-Identifier: MIT
"""Locks on the real Redis: given back after a restart in between, and never taken from somebody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import redis

from rig.redis_server import RedisServer
from tasks.locks import RedisLocks


@pytest.mark.real_part
def test_a_lock_is_given_back_to_a_redis_that_was_restarted_meanwhile(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, appendonly=True)
    server.start()
    try:
        locks = RedisLocks(redis.Redis.from_url(server.url, retry=None), "worker@a")
        other = RedisLocks(redis.Redis.from_url(server.url), "worker@b")
        assert locks.take("x")
        assert not other.take("x")
        server.kill()
        server.start()
        locks.release("x")
        assert other.take("x")
        locks.release("x")
        assert not RedisLocks(redis.Redis.from_url(server.url), "worker@c").take("x")
    finally:
        server.stop()


def test_a_process_that_was_killed_leaves_its_lock_to_the_others_of_its_worker(
    redis_server: RedisServer,
) -> None:
    redis_server.flush()
    client = redis.Redis.from_url(redis_server.url)
    child = os.fork()
    if child == 0:
        RedisLocks(redis.Redis.from_url(redis_server.url), "worker@a").take("x")
        os._exit(0)
    os.waitpid(child, 0)
    assert not RedisLocks(client, "worker@b").take("x"), "of another worker, perhaps on another host"
    ours = RedisLocks(client, "worker@a")
    assert ours.take("x")
    assert not RedisLocks(client, "worker@a").take("x"), "its holder lives"
    ours.release("x")
    assert RedisLocks(client, "worker@b").take("x")
