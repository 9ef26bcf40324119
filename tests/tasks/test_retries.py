# SPDX-License-Identifier: MIT
"""How soon a task comes back is a matter of what went wrong."""

import pytest
import redis
from celery import Celery

from agent.core.errors import AnswerTooSlow, BackendUnavailable, SiteAgentError
from agent.core.retries import COUNTDOWN_MAX_S, policy_for
from rig.redis_server import RedisServer
from tasks.base import SiteTask
from tasks.queue import broker
from tasks.queue.stores import RedisStore
from tasks.queue.work import WorkQueue
from tests.tasks.queue_requests import KEY


@pytest.mark.parametrize(
    ("error", "soonest_s", "latest_s"),
    [
        (BackendUnavailable("slurmdbd is away"), 4, 6),
        (AnswerTooSlow("`sacct` gave no answer"), COUNTDOWN_MAX_S, COUNTDOWN_MAX_S),
    ],
)
def test_a_read_that_was_killed_is_not_asked_again_at_once(
    error: SiteAgentError, soonest_s: float, latest_s: float
) -> None:
    waits = [policy_for(error).countdown_s(0, chance) for chance in (-1.0, 0.0, 1.0)]
    assert soonest_s <= min(waits) <= max(waits) <= latest_s


@pytest.mark.real_part
def test_no_failure_is_left_to_a_retry_that_has_met_another_at_work(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one goes once more by a task of its own; what failed after it would wait for the next poll."""
    redis_server.flush()
    queue, other = (
        WorkQueue(RedisStore(redis.Redis.from_url(redis_server.url), owner), lambda _: None)
        for owner in ("worker@a", "worker@b")
    )
    monkeypatch.setattr(broker, "queue", lambda: queue)
    app = Celery("here", task_cls=SiteTask, broker="memory://", set_as_current=False)

    @app.task(name="a_pass", bind=True)
    def task(self: SiteTask, offering_uuid: str) -> None:
        """One over everything."""

    assert queue.is_first_to_retry(KEY, "one")
    assert not queue.is_first_to_retry(KEY, "two")
    task.push_request(id="one", args=["o"], delivery_info={"routing_key": "q", "priority": 3})
    try:
        with other.at_work(KEY), task.at_work(KEY) as is_ours:
            assert not is_ours
    finally:
        task.pop_request()
    assert queue.is_first_to_retry(KEY, "two")
