# SPDX-License-Identifier: MIT
"""Dead letters: kept once, bounded, listed, replayed; a folder that cannot be written stops nothing."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent.bridge.dead_letters import DeadLetters, letter
from agent.bridge.dispatcher import Dispatcher
from agent.bridge.inbox import Inbox
from agent.state import dead_letters
from rig.celery_process import REPOSITORY, environment
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur
from tests.agent.bridge.inprocess import Written
from tests.tasks.bad_messages import received

pytestmark = pytest.mark.events


def test_a_message_is_kept_once_and_as_it_came(tmp_path: Path) -> None:
    letters, another = DeadLetters(tmp_path), DeadLetters(tmp_path)
    new = []
    for body in (b"{", b"{", b"\xff\x00", b"{"):
        new.append(letters.add(letter(received(body), "why")))
        assert not another.add(letter(received(body), "why"))
    assert new == [True, False, True, False]
    found = letters.all()
    assert [(each.content(), each.reason, each.size) for each in found] == [
        (b"{", "why", 1),
        (b"\xff\x00", "why", 2),
    ]
    assert oct(letters.path.stat().st_mode)[-3:] == "600"
    assert b"t0ken" not in letters.path.read_bytes()
    assert letters.take(lambda each: each.id == found[0].id) == 1
    assert [each.id for each in letters.all()] == [found[1].id]


def test_what_comes_again_after_it_was_thrown_away_is_kept_again(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path)
    for body in (b"{", b"["):
        letters.add(letter(received(body), "why"))
    assert DeadLetters(tmp_path).take(lambda each: each.body == "{") == 1  # a person's command
    assert [letters.add(letter(received(body), "why")) for body in (b"[", b"{", b"{")] == [
        False,
        True,
        False,
    ]
    assert [each.body for each in letters.all()] == ["[", "{"]
    letters.path.unlink()
    assert letters.add(letter(received(b"["), "why"))
    assert letters.path == tmp_path / "bridge" / "state.sqlite3", (
        "the bridge may be another user than the worker"
    )


def test_the_same_bad_message_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inbox = Inbox()
    with caplog.at_level(logging.WARNING, "agent.bridge"):
        dispatcher = Dispatcher(inbox, Written(), DeadLetters(tmp_path))
        for n in range(100):
            dispatcher.handle(received(b"{" if n % 2 else b"["))
    assert dispatcher.counts["dead letters"] == 100
    assert sum("is a dead letter" in record.getMessage() for record in caplog.records) == 2


def test_the_oldest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "KEPT_AT_MOST", 50)
    letters = DeadLetters(tmp_path)
    for n in range(70):
        letters.add(letter(received(f"{n}".encode()), "why"))
    assert [each.body for each in letters.all()] == [str(n) for n in range(20, 70)]


@pytest.mark.parametrize("body", ["\u2028", "a\u0085b", "\r\n", "\x00", "\x1c\x1d", "'"])
def test_a_message_with_ends_of_lines_is_one_message(tmp_path: Path, body: str) -> None:
    letters = DeadLetters(tmp_path)
    assert letters.add(letter(received(body.encode()), "why"))
    assert [each.content() for each in letters.all()] == [body.encode()]


PARKER = """
import sys
from pathlib import Path
from agent.bridge.dead_letters import DeadLetters, letter
from tests.tasks.bad_messages import received
letters = DeadLetters(Path(sys.argv[1]))
for n in range(15):
    letters.add(letter(received(f"{sys.argv[2]} {n}".encode()), "why"))
    letters.add(letter(received(f"both {n}".encode()), "why"))
"""


def test_two_bridges_and_a_person_lose_none(tmp_path: Path) -> None:
    parkers = [subprocess.Popen([python(), "-c", PARKER, tmp_path, name]) for name in ("a", "b")]
    letters, taken = DeadLetters(tmp_path), 0
    while any(parker.poll() is None for parker in parkers):
        taken += letters.take(lambda each: each.body.startswith("a "))
    assert [parker.returncode for parker in parkers] == [0, 0]
    taken += letters.take(lambda each: each.body.startswith("a "))
    assert taken == 15
    assert len(letters.all()) == 30


def test_a_folder_that_cannot_be_written_puts_it_into_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bridge").write_text("a file where the folder should be")
    letters = DeadLetters(tmp_path)
    for _ in range(3):
        assert not letters.add(letter(received(b"the body"), "why"))
    assert caplog.text.count("the body") == 1


def test_they_are_listed_and_replayed(redis_server: RedisServer, tmp_path: Path) -> None:
    redis_server.flush()
    with SimulatedWaldur() as waldur:
        config = configuration(waldur, tmp_path)
        own = waldur.seed.offering_uuid
    letters = DeadLetters(tmp_path / "state")
    good = letter(received(json.dumps({"order_uuid": "b" * 32}).encode(), own), "as an older bridge saw it")
    bad = letter(received(b"{}", own), "it has no order_uuid")
    letters.add(good)
    letters.add(bad)
    newer = replace(good, id="newer", object_type="of_a_newer_agent")
    letters.add(newer)
    assert [
        each["id"] for each in json.loads(run(config, redis_server, "list", "--json"))["dead_letters"]
    ] == [
        good.id,
        bad.id,
        newer.id,
    ]
    said = run(config, redis_server, "replay", "--all", code=1)
    assert f"{good.id}: orders" in said
    assert f"{bad.id}: still not understood: it has no order_uuid" in said
    assert f"{newer.id}: still not understood: its type 'of_a_newer_agent' is none" in said
    assert [each.id for each in letters.all()] == [bad.id, newer.id]
    assert redis_server.command("LLEN site.default") == b":1\r\n"
    assert "'' could be" not in run(config, redis_server, "replay", "", code=2)
    run(config, redis_server, "replay", bad.id[:6].upper(), "new", "--drop")
    assert "0 dead letters" in run(config, redis_server, "list")
    assert f"no dead letter {bad.id}" in run(config, redis_server, "replay", bad.id, code=2)


def run(config: Path, redis: RedisServer, *words: str, code: int = 0) -> str:
    logging.getLogger(__name__).debug("%s", words)
    command = [python(), str(REPOSITORY / "manage.py"), "events", "dead-letters", *words]
    env = {**os.environ, **environment(config, redis.url)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + (done.stderr if code else "")
