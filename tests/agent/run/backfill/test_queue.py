# SPDX-License-Identifier: MIT
"""Months through the queue: a real Redis, a real worker, loaders that are stopped and killed, a worker that is killed.

The site and its worker serve all tests of this file.
"""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import redis

from agent.config.secret import Secret
from agent.core.periods import Month
from agent.host.waiting import GIVE_UP_S
from agent.run.backfill import staff
from agent.run.backfill.month import LoadOptions
from agent.run.backfill.results import Ending, MonthOutcome
from agent.run.backfill.runs import InProcess, Loader, Run, RunRecord
from rig import warm_python
from rig.celery_process import CeleryProcess, environment
from rig.history import YEAR
from rig.processes import tail, wait_until
from rig.recorded_progress import RecordedProgress
from rig.redis_server import RedisServer
from rig.site import settings_of
from rig.warm_python import WarmProcess
from simulator.server.faults import Fault, FaultKind
from tasks.queue.month_status import MonthState, MonthStatus, RunStatus
from tasks.queue.stores import RedisStore
from tasks.queue.work import WorkQueue
from tests.agent.run.backfill.operator import Operator, small_waldur
from tests.tasks.scripts import PATIENT

QUEUE = "site.c1:9"
MONTHS = YEAR[:4]
DATES = ("-s", "2024-01-01", "-e", "2024-04-30")


class Site:
    """A site with a queue. What it starts is stopped at the end."""

    def __init__(self, operator: Operator, broker: RedisServer) -> None:
        operator.token_file()
        self.operator = operator
        self.config = operator.configure(staff_token_file="staff-token")
        self.env = environment(Path(self.config), broker.url)
        self.redis = redis.Redis.from_url(broker.url)
        self.worker = CeleryProcess("worker", operator.folder / "worker.log", self.env)
        self.loaders: list[WarmProcess] = []
        self._is_started = False

    def start_worker(self) -> None:
        """Unless it runs: a loader waits for it."""
        if not self._is_started:
            self.worker.start(wait=False)
        self._is_started = True

    def empty(self) -> None:
        """Waldur has no usage, and none was asked for. Copies of months that are done may still be in the queue:
        without their status they would be loaded once more, in the next test.
        """
        if self._is_started:
            wait_until("the end of all messages", self.is_quiet, self.worker.process)
        self.operator.forget()
        self.redis.delete(*self.redis.keys("site-backfill:*") or ["none"])

    def messages(self) -> int:
        """How many wait for the worker or are at work."""
        held = self.redis.scan_iter(match="unacked*", _type="hash")
        return self.redis.llen(QUEUE) + sum(map(self.redis.hlen, held))

    def is_quiet(self) -> bool:
        """Return whether the worker waits, and for no message: one that it is taking is nowhere in Redis."""
        return self.redis.info("clients")["blocked_clients"] > 0 and not self.messages()

    def loader(self, *words: str) -> WarmProcess:
        log = self.operator.folder / f"loader-{len(self.loaders)}.log"
        command = ["-c", PATIENT, "historical-usage", "-c", self.config, *DATES, *words]
        self.loaders.append(warm_python.of_commands().popen(command, log=log, env=self.env))
        return self.loaders[-1]

    def load_here(self, months: Sequence[Month]) -> None:
        """Without a worker."""
        settings = settings_of(Path(self.config))
        site = staff.connect(settings, settings.offerings[0], Secret(self.operator.token))
        run = Run(site.offering.uuid, tuple(months), LoadOptions())
        progress = RecordedProgress()
        record = RunRecord(run, self.operator.folder / "here")
        Loader(record, progress, InProcess(site, run.options, progress)).load(run.months)

    def said(self, number: int = -1) -> str:
        index = number if number >= 0 else len(self.loaders) + number
        return tail(self.operator.folder / f"loader-{index}.log", 10**9)

    def looks(self) -> int:
        """How often loaders have looked at the status, in all."""
        calls = self.redis.info("commandstats").get("cmdstat_get", {"calls": 0})["calls"]
        return int(calls)

    def is_loaded(self) -> bool:
        return all(self.operator.is_loaded(month) for month in MONTHS)

    def close(self) -> None:
        for loader in self.loaders:
            if loader.poll() is None:
                loader.kill()
            loader.wait()
        if self._is_started:
            self.worker.kill()
        for number in range(len(self.loaders)):
            print(self.said(number))
        print(self.worker.output())


@pytest.fixture(scope="module")
def whole_site(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    redis_server.flush()
    with small_waldur() as waldur:
        made = Site(Operator(waldur, tmp_path_factory.mktemp("queue")), redis_server)
        yield made
        made.close()


@pytest.fixture
def site(whole_site: Site) -> Site:
    whole_site.empty()
    return whole_site


def wait(what: str, ready: Callable[[], bool]) -> None:
    wait_until(what, ready, pause_s=0.05)


def everything_in(client: redis.Redis) -> str:
    """All that Redis holds, as text; bodies of messages as they are read by workers. A key may end while it is read."""
    found = []
    for key in client.scan_iter():
        match client.type(key):
            case b"list":
                items = client.lrange(key, 0, -1)
            case b"hash":
                items = [*client.hkeys(key), *client.hvals(key)]
            case b"string":
                items = [client.get(key) or b""]
            case _:
                items = [key]
        found += [text for item in items for text in (item.decode(), _body(item))]
    return "\n".join(found)


def _body(item: bytes) -> str:
    try:
        document = json.loads(item)
        message = document[0] if isinstance(document, list) else document
        return base64.b64decode(message["body"]).decode()
    except (ValueError, KeyError, TypeError):
        return ""


def test_months_outlive_their_loaders_and_are_loaded_once(site: Site) -> None:
    """The first loader is interrupted while no worker runs; the second sends all months once more, and is killed; the
    third one follows them and reports how it ended.
    """
    count = len(MONTHS)
    site.loader()
    wait("all months queued", lambda: site.redis.llen(QUEUE) == count)
    looks = site.looks()
    wait("it knows, and looks what becomes of them", lambda: site.looks() > looks)
    queued = everything_in(site.redis)
    assert queued.count('"2024-04", ') == 1 and site.operator.token not in queued
    site.loaders[0].send_signal(signal.SIGINT)
    assert site.loaders[0].wait(GIVE_UP_S) == 130
    assert f"Stopped: 0 of {count} months are done; {count} stay in the queue, and the" in site.said()
    site.loader()
    wait("as many more", lambda: site.redis.llen(QUEUE) == 2 * count)
    site.loaders[1].kill()
    third = site.loader("--resume")
    wait("the third loader", lambda: f"Will process {count} months" in site.said())
    assert site.redis.llen(QUEUE) == 2 * count, "what is under way is not sent again"
    site.start_worker()
    assert third.wait(GIVE_UP_S) == 0
    assert site.is_loaded()
    assert sorted(site.operator.counted()) == [str(month) for month in MONTHS]
    assert site.said().count("Completed processing") == count
    assert f"Historical usage loading completed successfully!\nProcessed {count} months" in site.said()
    assert site.operator.token not in everything_in(site.redis) + site.worker.output() + site.said()
    keys = list(site.redis.scan_iter(match="site-backfill:*"))
    assert len(keys) == count
    assert all(0 < site.redis.ttl(key) <= 7 * 24 * 3600 for key in keys)


def test_what_becomes_of_months_is_listed(site: Site) -> None:
    """One total of March is lower than before; Waldur refuses one of April."""
    site.start_worker()
    site.load_here(YEAR[2:4])
    store = site.operator.waldur.store
    first = site.operator.names[0]
    for row in store.usages:
        is_first = store.resources[row.resource_uuid].backend_id == first
        row.usage += 1000 if is_first or row.billing_period == Month(2024, 4).first_day else -1
    body = '{"detail": "not this one"}'
    path = "set_usage/"
    fault = Fault(path=path, method="POST", status=400, body=body, content_type="application/json", skip=2)
    site.operator.waldur.inject(fault)
    spring = ("-s", "2024-03-01", "-e", "2024-04-30", "--allow-decreases")
    assert site.loader("--delay-between-months", "1", *spring).wait(GIVE_UP_S) == 1
    lines = site.said().splitlines()
    place = lines.index("error: 1 of 2 months failed:")
    assert lines[place + 1].startswith("  2024-04: ")
    assert lines[place + 1].endswith("answered 400: not this one")
    assert f"warning: {first} in 2024-03: cpu lowered from 1003.00 to 3.00" in lines
    assert [line for line in lines if "figures were lowered: " in line] == [
        "warning: 4 figures were lowered: 2 in 2024-03, 2 in 2024-04"
    ]
    assert "2024-03 done, 2 resources, 2 of them changed, 0 held, 2 figures lowered, " in site.worker.output()
    heads = [line for line in lines if line.startswith("Processing month")]
    assert heads == [f"Processing month {n}/2: 2024-0{n + 2}" for n in (1, 2)], "one after the other"


def test_a_worker_killed_half_way_comes_back_to_its_months(site: Site) -> None:
    """Waldur takes the totals of one of the two months at work at once, and is slow with the others."""
    slow = {"path": "set_usage/", "method": "POST", "latency_ms": 30_000, "skip": 3, "times": None}
    site.operator.waldur.inject(Fault(kind=FaultKind.DELAY, **slow))
    site.start_worker()
    loader = site.loader()
    wait("the first month", lambda: "Completed processing" in site.said())
    site.worker.kill()
    site.operator.waldur.faults.clear()
    done = site.said().count("Completed processing")
    assert done < len(MONTHS)
    site.worker.start(wait=False)
    assert loader.wait(GIVE_UP_S) == 0
    assert site.is_loaded()
    assert "ended without finishing" in site.worker.output()


def test_a_worker_without_a_usable_token_fails_every_month_with_the_reason(site: Site) -> None:
    site.start_worker()
    (site.operator.folder / "staff-token").write_text("")
    assert site.loader("-s", "2024-01-01", "-e", "2024-02-29").wait(GIVE_UP_S) == 1
    site.operator.token_file()
    place = site.said().splitlines().index("error: 2 of 2 months failed:")
    reasons = site.said().splitlines()[place + 1 : place + 3]
    token_file = site.operator.folder / "staff-token"
    assert [r.partition(": ")[2] for r in reasons] == 2 * [
        f"staff_token_file of offering Test SLURM: {token_file} is empty"
    ]
    assert site.operator.counted() == []


def test_a_copy_that_finds_its_month_taken_says_nothing(site: Site) -> None:
    """The last test of this file: the copy comes back in ten seconds."""
    site.start_worker()
    offering = site.operator.waldur.seed.offering_uuid
    first, key = WorkQueue(RedisStore(site.redis, "another"), lambda _: None), f"backfill:{offering}:2024-05"
    token = first.take(key)
    assert token is not None
    loader = site.loader("-s", "2024-05-01", "-e", "2024-06-30")
    wait("the other month", lambda: "Completed processing 2024-06" in site.said())
    wait("the copy", lambda: "2024-05 is being loaded by another task" in site.worker.output())
    status = RunStatus(RedisStore(site.redis, ""), Run(offering, YEAR[4:6], LoadOptions()).id)
    assert status.read(["2024-05"]) == {"2024-05": MonthStatus(MonthState.QUEUED)}
    status.write("2024-05", MonthStatus(MonthState.ENDED, outcome=MonthOutcome("2024-05", Ending.DONE)))
    assert loader.wait(GIVE_UP_S) == 0
    assert "waits and is tried again" not in site.said()
