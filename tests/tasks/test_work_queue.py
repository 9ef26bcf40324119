# SPDX-License-Identifier: MIT
"""The work queue: one contract for all stores; what one process may do at each step is in `test_work_queue_steps.py`.

What must hold: never two at work on one key, a request that came while a key was at work is run afterwards, and no
key is queued twice, but by producers at the same moment, of which none knows whether the other one lives.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Connection
from kombu.exceptions import OperationalError

from agent.core.backoff import Backoff, RetryPolicy
from agent.core.events import QueueUnavailable
from rig.parts import REDIS_PROGRAMS
from rig.processes import wait_until
from rig.rabbitmq import ADMIN, PASSWORD, RabbitMq
from rig.redis_server import OWN, RedisServer
from tasks.queue import work
from tasks.queue.stores import HostStore, MemoryStore, ProcessStore, RedisStore, Step, Store
from tasks.queue.work import Request, WorkQueue, merged
from tests.scale import FULL
from tests.tasks.queue_requests import KEY, RUN

pytestmark = pytest.mark.real_part


class Place:
    """One broker as the processes of a test see it. `is_alone`: there is one process only."""

    def __init__(self, make_store: Callable[[str], Store], url: str, *, is_alone: bool = False) -> None:
        self._make_store, self._url, self.is_alone = make_store, url, is_alone
        self.name = f"test-{uuid.uuid4().hex}"
        self.sent: list[Request] = []

    def queue(self, owner: str = "worker@a") -> WorkQueue:
        """The queue as a process sees it that has just begun."""
        return WorkQueue(self._make_store(owner), self.sent.append)

    def messages(self) -> Any:
        """An open queue of real messages: `put` and `get`."""
        return Connection(self._url).SimpleQueue(self.name)


@pytest.fixture(params=[OWN, *REDIS_PROGRAMS, "rabbitmq", "one process"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param in (OWN, *REDIS_PROGRAMS):
        servers: Callable[[str], RedisServer] = request.getfixturevalue("redis_servers")
        server = servers(request.param)
        server.flush()
        return Place(lambda owner: RedisStore(redis.Redis.from_url(server.url), owner), server.url)
    if request.param == "rabbitmq":
        rabbitmq: RabbitMq = request.getfixturevalue("rabbitmq")
        url = f"amqp://{ADMIN}:{PASSWORD}@127.0.0.1:{rabbitmq.ports['amqp']}//"
        return Place(lambda _: HostStore(tmp_path / "queue"), url)
    store = ProcessStore(HostStore(tmp_path / "queue"))
    return Place(lambda _: store, "memory://", is_alone=True)


def request_of(*entries: str) -> Request:
    return {"task": "t", "args": ["o", sorted(entries)], "queue": "q", "priority": 3}


def test_a_key_waits_once_until_a_task_takes_it(place: Place) -> None:
    producer, worker, sent = place.queue(), place.queue(), list[int]()
    asked = [producer.ask(f"asked:{KEY}", lambda: sent.append(1)) for _ in range(3)]
    knows = producer.store.knows_queue
    assert (asked, producer.waits(KEY)) == (([True, False, False], True) if knows else ([True] * 3, False))
    token = worker.take(KEY)
    assert token is not None and not producer.waits(KEY)
    assert producer.ask(f"asked:{KEY}", lambda: sent.append(1)), "what comes from here on is news"
    worker.done(KEY, token)
    assert len(sent) == (2 if knows else 4)


def test_the_mark_of_a_producer_that_died_or_failed_is_no_message(place: Place) -> None:
    queue, sent = place.queue(), list[int]()
    queue.store.update(f"asked:{KEY}", lambda _: Step({"publishing": "of a producer that died"}, None, 15))
    assert queue.ask(f"asked:{KEY}", lambda: sent.append(1))
    with pytest.raises(ZeroDivisionError):
        queue.ask("asked:other", lambda: sent.append(1 // 0))
    assert queue.ask("asked:other", lambda: sent.append(1))
    assert len(sent) == 2


def test_a_task_that_begins_before_its_producer_has_written_that_it_waits_leaves_nothing(
    place: Place,
) -> None:
    producer, worker, tokens = place.queue(), place.queue(), list[str | None]()
    assert producer.ask(f"asked:{KEY}", lambda: tokens.append(worker.take(KEY)))
    assert not producer.waits(KEY)
    assert producer.ask(f"asked:{KEY}", lambda: None)


def test_a_key_is_at_work_once_and_goes_once_more_with_all_that_was_asked_for(place: Place) -> None:
    one, two = place.queue("worker@a"), place.queue("worker@b")
    with one.at_work(KEY, request_of("x")) as is_ours:
        assert is_ours
        for entries in (("b",), ("a", "b"), ("c",)):
            with two.at_work(KEY, request_of(*entries)) as other:
                assert not other
        assert two.take("another key") is not None
        assert one.is_due(KEY, "t") and not one.is_due(KEY, "another") and place.sent == []
    assert place.sent == [request_of("a", "b", "c")]
    assert not one.is_due(KEY, "t")
    with two.at_work(KEY) as is_ours:
        assert is_ours
    assert len(place.sent) == 1


def test_a_poll_asks_for_nothing_where_another_is_at_work_but_on_a_part(place: Place) -> None:
    one, two = place.queue("worker@a"), place.queue("worker@b")
    with one.at_work(KEY), two.at_work(KEY, RUN, is_poll=True) as is_ours:
        assert not is_ours
    assert place.sent == []
    with one.at_work(KEY, part="a part"), two.at_work(KEY, RUN, is_poll=True) as is_ours:
        assert not is_ours
    assert place.sent == [RUN]


def test_the_end_of_another_task_is_not_ours(place: Place) -> None:
    one, two = place.queue("worker@a"), place.queue("worker@b")
    assert one.take(KEY) is not None
    two.done(KEY, "some other token")
    assert two.take(KEY) is None


@pytest.mark.parametrize("is_restarted", [False, True], ids=["one of its pool", "the whole worker"])
def test_a_process_that_was_killed_at_work_leaves_its_key_and_what_was_asked_for(
    place: Place, is_restarted: bool
) -> None:
    if place.is_alone:
        pytest.skip(
            "what waits in one process is lost with it: the first pass after its start finds it again"
        )
    process = multiprocessing.get_context("fork").Process(target=lambda: place.queue("worker@a").take(KEY))
    process.start()
    while place.queue("worker@b").take("seen") and process.is_alive():
        time.sleep(0.01)
    process.join()
    asking = place.queue("worker@b")
    if isinstance(asking.store, RedisStore):
        assert asking.take(KEY, request_of("a")) is None, "of another worker, perhaps on another host"
        asking.store.update(f"work:{KEY}", lambda record: Step(record, None))
    else:
        asking.store.update(
            f"work:{KEY}", lambda record: Step({**(record or {}), "again": request_of("a")}, None)
        )
    ours = place.queue("worker@a")
    if is_restarted:
        assert ours.recover() == 1
        assert place.sent == [request_of("a")]
        assert ours.recover() == 0
        token = ours.take(KEY)
    else:
        token = ours.take(KEY)
        assert token is not None and place.sent == []
        assert place.queue("worker@a").take(KEY) is None, "its holder lives"
        ours.done(KEY, token)
        assert place.sent == [request_of("a")]
        token = ours.take(KEY)
    assert token is not None


def test_records_end_and_what_is_added_does_not_keep_them(place: Place) -> None:
    queue = place.queue()
    for name, lives_s in (("long", 600), ("short", 0.6)):
        queue.store.update(name, lambda _: Step({"n": 1}, None, lives_s))  # noqa: B023
        queue.store.update(name, lambda record: Step(record and {**record, "m": 2}, None))
    assert queue.record("long") == {"n": 1, "m": 2}
    wait_until("its end", lambda: queue.record("short") is None)
    queue.store.update("short", lambda record: Step({"was": record}, None, 60))
    assert queue.record("short") == {"was": None}


def test_what_was_named_again_since_then_stays(place: Place) -> None:
    bridge, worker = place.queue("bridge"), place.queue()
    assert bridge.add_changed("o", ["project:a", "project:b"]) == 2
    seen = worker.changed("o")
    assert bridge.add_changed("o", ["project:b", "project:c"]) == 3
    worker.cover("o", seen)
    assert sorted(worker.changed("o")) == ["project:b", "project:c"]
    worker.cover("o", worker.changed("o"))
    assert worker.changed("o") == {}


def test_of_several_tasks_that_fail_one_comes_back(place: Place) -> None:
    queue = place.queue()
    knows = queue.store.knows_queue
    assert [queue.is_first_to_retry(KEY, task) for task in ("one", "two", "one")] == [True, not knows, True]
    queue.end_retry(KEY, "two")
    assert queue.is_first_to_retry(KEY, "three") is not knows
    queue.end_retry(KEY, "one")
    assert queue.is_first_to_retry(KEY, "three")


def test_what_a_predecessor_left_is_kept_where_it_cannot_be_sent(place: Place) -> None:
    if place.is_alone:
        pytest.skip("its queue ends with the process")
    dead, started = place.queue(), place.queue()
    assert dead.take(KEY) and dead.take(KEY, request_of("a")) is None
    record = dead.record(f"work:{KEY}")
    dead.store.update(
        f"work:{KEY}", lambda _: Step({**(record or {}), "process": f"{record and record['process']}0"}, None)
    )

    def refuse(_: Request) -> None:
        raise OperationalError("the broker is away")

    with pytest.raises(OperationalError):
        WorkQueue(started.store, refuse).recover()
    assert place.sent == []
    token = started.take(KEY)
    assert token is not None
    started.done(KEY, token)
    assert place.sent == [request_of("a")]


def test_starts_are_counted_until_the_end(place: Place) -> None:
    queue = place.queue()
    assert [queue.count_start("id") for _ in range(3)] == [1, 2, 3]
    queue.forget("begun:id")
    assert queue.count_start("id") == 1


@pytest.mark.parametrize("content", ["", "[]", '{"work:k": 1}', '{"work:k": [1, 2.0]}'])
def test_records_that_none_of_us_wrote_are_no_records(tmp_path: Path, content: str) -> None:
    queue = WorkQueue(HostStore(tmp_path), lambda _: None)
    (tmp_path / "records.json").write_text(content)
    token = queue.take("k")
    assert token is not None and queue.take("k") is None


def test_without_room_for_records_the_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where the folder is to be stands for a disk that takes nothing."""
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waits for a disk"))
    (tmp_path / "queue").write_text("")
    queue = WorkQueue(HostStore(tmp_path / "queue"), lambda _: None)
    with queue.at_work(KEY) as is_mine:
        assert is_mine
    assert queue.count_start("id") == 0
    assert queue.is_first_to_retry(KEY, "one")


def test_services_of_one_process_each_are_not_at_work_on_the_same(tmp_path: Path) -> None:
    """The reference's services of one host: each has its queue in its own memory."""
    sent: list[Request] = []
    one, two = (WorkQueue(ProcessStore(HostStore(tmp_path)), sent.append) for _ in range(2))
    assert one.ask(f"asked:{KEY}", lambda: None) and two.ask(f"asked:{KEY}", lambda: None)
    with one.at_work(KEY), two.at_work(KEY, RUN) as is_ours:
        assert not is_ours
    assert sent == [RUN]


def test_requests_are_put_together() -> None:
    assert merged(None, request_of("a")) == request_of("a")
    assert merged(request_of("b"), request_of("a")) == request_of("a", "b")
    whole = {**request_of(), "task": "all", "args": ["o"]}
    assert merged(whole, request_of("a")) == merged(request_of("a"), whole) == whole


COUNTS, PROCESSES = 200, 4


def test_no_update_of_several_processes_is_lost(place: Place) -> None:
    """All at the same moment, on one record."""

    def count() -> None:
        queue = place.queue()
        for _ in range(COUNTS):
            queue.add_changed("o", [f"project:{uuid.uuid4().hex}"])

    kind: Any = threading.Thread if place.is_alone else multiprocessing.get_context("fork").Process
    running = [kind(target=count) for _ in range(PROCESSES)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert len(place.queue().changed("o")) == COUNTS * PROCESSES


EVENTS = 300 if FULL else 100


def test_nothing_is_lost_between_processes_at_full_speed(place: Place) -> None:
    """Producers and workers as processes, with real messages: the last event is covered by a task that began after it,
    and there are fewer tasks than events.
    """
    context: Any = multiprocessing.get_context("fork")
    truth, covered, passes, at_work, faults, ended = (context.Value("i", 0) for _ in range(6))

    def produce(seed: int) -> None:
        queue, messages, chance = place.queue(f"bridge@{seed}"), place.messages(), random.Random(seed)
        for _ in range(EVENTS):
            with truth.get_lock():
                truth.value += 1
            queue.ask(f"asked:{KEY}", lambda: messages.put(RUN))
            time.sleep(chance.choice((0, 0, 0.001, 0.004)))

    def work(seed: int) -> None:
        messages, chance = place.messages(), random.Random(seed)
        queue = WorkQueue(place.queue(f"worker@{seed}").store, lambda request: messages.put(dict(request)))
        while not ended.value:
            try:
                message = messages.get(timeout=0.5)
            except messages.Empty:
                continue
            with queue.at_work(KEY, message.payload) as is_ours:
                if is_ours:
                    with at_work.get_lock():
                        at_work.value += 1
                        faults.value += at_work.value > 1
                    seen = truth.value
                    time.sleep(chance.choice((0, 0.002, 0.01)))
                    covered.value = max(covered.value, seen)
                    with at_work.get_lock():
                        at_work.value -= 1
                        passes.value += 1
            message.ack()

    kind: Any = threading.Thread if place.is_alone else context.Process
    bodies = [(produce, 0), (produce, 1), (work, 0), (work, 1), (work, 2)]
    running = [kind(target=body, args=(seed,)) for body, seed in bodies]
    for each in running:
        each.start()
    try:
        wait_until("all is covered", lambda: covered.value == 2 * EVENTS, progress=lambda: passes.value)
    finally:
        ended.value = 1
        for each in running:
            each.join()
    assert faults.value == 0
    if place.queue().store.knows_queue:
        assert passes.value < 2 * EVENTS
    assert place.queue().store.names("work:") == []


@pytest.mark.parametrize("away_s", [0.0, 4.0])
def test_what_was_asked_for_is_sent_though_redis_is_away_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away_s: float
) -> None:
    assert sum(work.END.backoff.wait_s(n) for n in range(work.END.attempts - 1)) >= 20
    monkeypatch.setattr(work, "END", RetryPolicy(100, work.END.backoff))
    server = RedisServer(tmp_path, appendonly=True)
    server.start()
    sent: list[Request] = []
    try:
        queue, other = (
            WorkQueue(RedisStore(redis.Redis.from_url(server.url, retry=None), owner), sent.append)
            for owner in ("worker@a", "worker@b")
        )
        token = queue.take(KEY)
        assert token is not None
        assert other.take(KEY, RUN) is None
        server.kill()
        ending = threading.Thread(target=queue.done, args=(KEY, token))
        ending.start()
        time.sleep(away_s)
        server.start()
        ending.join()
        assert sent == [RUN]
        wait_until("Redis answers", server.answers)
        assert other.take(KEY) is not None
    finally:
        server.stop()


def test_redis_that_is_away_for_longer_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "END", RetryPolicy(2, Backoff(0.01, 0.01, 0)))

    class Away(MemoryStore):
        is_away = False

        def update(self, name: str, change: Any) -> Any:
            if self.is_away:
                raise QueueUnavailable("Redis is away")
            return super().update(name, change)

    store = Away()
    queue = WorkQueue(store, lambda _: None)
    token = queue.take(KEY)
    assert token is not None
    store.is_away = True
    queue.done(KEY, token)
    assert "while it ran is left to the next work on it, or to the next poll (Redis is away)" in caplog.text
    assert queue.take("another") is not None, "goes on without"
    assert "whether another is at work is not known, going on: Redis is away" in caplog.text
