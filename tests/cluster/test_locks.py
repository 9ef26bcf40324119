# SPDX-License-Identifier: MIT
"""Locks on the real Redis: given back after a restart in between, and never taken from somebody else."""

from __future__ import annotations

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
