# SPDX-License-Identifier: MIT
"""Log lines: one JSON object each with the keys that sites know; readable lines on a terminal; never a secret."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery import Celery

from agent.config.secret import Secret, SecretUrl
from agent.observability import logs
from agent.run import passes
from agent.waldur import pool
from rig.emulator import emulated_cluster
from rig.site import configuration, settings_of, site_of
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur
from tasks import current
from tasks.base import SiteTask
from tests.agent.config.samples import OFFERING, REPOSITORY, root

Heard = Callable[[Callable[[], object]], list[dict[str, Any]]]
log = logging.getLogger("tests.speaker")


@pytest.fixture
def heard(capsys: pytest.CaptureFixture[str]) -> Iterator[Heard]:
    """The lines that an action logs at INFO, parsed. The loggers are as before afterwards."""
    top = logging.getLogger()
    handlers, level = list(top.handlers), top.level
    levels = {name: logging.getLogger(name).level for name in (*logs.QUIET, logs.QUIETER)}

    def listen(speak: Callable[[], object]) -> list[dict[str, Any]]:
        logs.set_up("INFO")
        speak()
        return [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    yield listen
    logging.captureWarnings(False)
    top.handlers, top.level = handlers, level
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def test_the_keys_of_a_line(heard: Heard) -> None:
    (line,) = heard(lambda: log.warning("order %s waits", "abc"))
    assert set(line) == {"event", "level", "logger", "timestamp"}
    assert (line["event"], line["level"], line["logger"]) == ("order abc waits", "warning", "tests.speaker")


@pytest.mark.parametrize(
    ("level", "word"),
    [(logging.INFO, "info"), (logging.ERROR, "error"), (logging.CRITICAL, "critical")],
)
def test_levels_are_in_small_letters(heard: Heard, level: int, word: str) -> None:
    assert [line["level"] for line in heard(lambda: log.log(level, "text"))] == [word]


def test_timestamps_are_utc_with_microseconds(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    before = datetime.now(UTC)
    text = heard(lambda: log.info("now"))[0]["timestamp"]
    moment = datetime.fromisoformat(text)
    assert moment.utcoffset() == timedelta(0)
    assert len(text) == len("2026-11-21T02:16:05.123456+00:00")
    assert before <= moment <= datetime.now(UTC)


def fail() -> None:
    try:
        raise ValueError("the reason")
    except ValueError:
        log.exception("it failed")


def test_exceptions_have_a_key_of_their_own_and_one_line(heard: Heard) -> None:
    (line,) = heard(fail)
    assert line["event"] == "it failed"
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith("ValueError: the reason")
    assert "exc_info" not in line


def test_context_is_added_and_cannot_forge_our_keys(heard: Heard) -> None:
    forged = {"order": "abc", "event": "forged", "level": "forged", "timestamp": "forged"}
    (line,) = heard(lambda: log.info("text", extra=forged))
    assert (line["order"], line["event"], line["level"]) == ("abc", "text", "info")
    assert line["timestamp"] != "forged"


@pytest.mark.parametrize(
    "value",
    [
        Path("/x"),
        {1},
        b"x",
        object(),
        ValueError("v"),
        datetime.now(UTC),
        {"a": [1, None]},
        "\n\u00e4\U0001f600",
    ],
)
def test_any_context_makes_one_line(heard: Heard, value: object) -> None:
    (line,) = heard(lambda: log.info("a text with\na line break", extra={"value": value}))
    assert line["event"] == "a text with\na line break"


def test_secrets_print_as_stars(heard: Heard) -> None:
    token, url = Secret("hush-hush"), SecretUrl("redis://:hush-hush@h/0")
    (line,) = heard(lambda: log.info("%s %r", token, url, extra={"t": token}))
    assert line["event"] == "*** redis://:***@h/0"
    assert line["t"] == "***"


@pytest.mark.parametrize("name", logs.QUIET)
def test_libraries_that_print_urls_are_quiet(heard: Heard, name: str) -> None:
    def speak() -> None:
        logs.set_up("DEBUG")
        logging.getLogger(name).info("https://x/?token=hush")
        logging.getLogger(name).warning("something is wrong")

    assert [line["event"] for line in heard(speak)] == ["something is wrong"]


def test_repeats_are_logged_once_by_us(heard: Heard) -> None:
    assert heard(lambda: logging.getLogger(logs.QUIETER).warning("Retrying (Retry(total=2 ...")) == []


def test_setting_up_twice_does_not_double_the_lines(heard: Heard) -> None:
    def speak() -> None:
        logs.set_up("INFO")
        log.info("once")
        log.debug("never")

    assert [line["event"] for line in heard(speak)] == ["once"]


def run_speaker(folder: Path, what: str, stderr: int) -> str:
    """What the speaker leaves on stderr, where that is a pipe."""
    file = folder / "site.yaml"
    file.write_text(yaml.safe_dump(root(offerings=[dict(OFFERING)])))
    words = [python(), "-m", "tests.agent.observability.speaker", str(file), what]
    done = subprocess.run(
        words, cwd=REPOSITORY, stderr=stderr, stdout=subprocess.DEVNULL, check=True, timeout=600, text=True
    )
    return done.stderr or ""


def test_a_terminal_gets_readable_lines_in_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    ours, theirs = pty.openpty()
    hours = {datetime.now(UTC).strftime("%H")}
    run_speaker(tmp_path, "idle", theirs)
    hours.add(datetime.now(UTC).strftime("%H"))
    os.close(theirs)
    words = os.read(ours, 4096).decode().split()
    os.close(ours)
    assert words[1:] == ["INFO", "nothing", "happens"]
    assert words[0].endswith("Z")
    assert words[0][:2] in hours


def test_warnings_of_python_are_lines_too(tmp_path: Path) -> None:
    (line,) = run_speaker(tmp_path, "warn", subprocess.PIPE).splitlines()
    logged = json.loads(line)
    assert (logged["level"], logged["logger"]) == ("warning", "py.warnings")
    assert "careful" in logged["event"]


def test_every_line_says_what_it_is_about(heard: Heard) -> None:
    def speak() -> None:
        with logs.about(offering="o1", task="membership_sync.part", task_id="t1", order=""):
            with logs.about(resource="r1", mode="membership_sync"):
                log.info("inside")
            log.info("outside", extra={"offering": "its own"})
        log.info("nothing")

    inside, outside, nothing = heard(speak)
    about = {"offering": "o1", "task": "membership_sync.part", "task_id": "t1"}
    assert {k: inside[k] for k in inside.keys() - nothing.keys()} == {
        **about, "resource": "r1", "mode": "membership_sync"
    }  # fmt: skip
    assert {k: outside[k] for k in outside.keys() - nothing.keys()} == {**about, "offering": "its own"}


def test_what_a_line_is_about_cannot_forge_our_keys(heard: Heard) -> None:
    def speak() -> None:
        with logs.about(event="forged", level="forged", timestamp="forged"):
            log.info("text")

    (line,) = heard(speak)
    assert (line["event"], line["level"]) == ("text", "info")
    assert line["timestamp"] != "forged"


def test_requests_of_other_threads_are_about_the_same(heard: Heard) -> None:
    def speak() -> None:
        with logs.about(offering="o1"):
            pool.each(range(4), lambda number: log.info("asked %d", number))

    assert [line["offering"] for line in heard(speak)] == ["o1"] * 4


def test_readable_lines_hold_what_the_sentence_does_not(
    capsys: pytest.CaptureFixture[str], heard: Heard
) -> None:
    logs.set_up("INFO", "text")
    with logs.about(offering="o1", order="abc"):
        log.info("order %s is done", "abc")
    log.info("no more")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("INFO    order abc is done [offering o1]")
    assert second.endswith("INFO    no more")


@pytest.mark.parametrize(("form", "is_json"), [("text", False), ("", True)])
def test_the_form_and_the_level_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, is_json: bool
) -> None:
    monkeypatch.setenv("WALDUR_SITE_AGENT_LOG_FORMAT", form)
    (line,) = run_speaker(tmp_path, "idle", subprocess.PIPE).splitlines()
    assert line.startswith("{") == is_json
    monkeypatch.setenv("WALDUR_SITE_AGENT_LOG_LEVEL", "warning")
    assert run_speaker(tmp_path, "idle", subprocess.PIPE) == ""


def test_a_line_for_each_action_and_one_for_the_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    """As a worker logs them: with the order, the resource and the task on each; an idle pass logs nothing."""
    commands, emulator = emulated_cluster(tmp_path)
    for name, value in emulator.items():
        monkeypatch.setenv(name, value)

    class Polling(SiteTask):
        name = "order_process.poll"

        def run(self, offering_uuid: str) -> None:
            self.finish(passes.process_orders(site_of(config)))

    with SimulatedWaldur() as waldur:
        config = configuration(
            waldur, tmp_path, backend={"slurm_bin_path": str(commands), "cluster_name": "demo"}
        )
        monkeypatch.setattr(current, "_given", [settings_of(config)])
        current.settings.cache_clear()
        offering = waldur.seed.offering_uuid
        order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10})
        polling = Celery("test", set_as_current=False).register_task(Polling())
        lines = heard(lambda: polling.apply((offering,), task_id="t1", throw=True))
        idle = heard(lambda: polling.apply((offering,), task_id="t2", throw=True))
    current.settings.cache_clear()
    ours = [line for line in lines if line["logger"].startswith(("agent.run", "tasks"))]
    assert ours and all(
        (line["offering"], line["mode"], line["task"], line["task_id"])
        == (offering, "order_process", "order_process.poll", "t1")
        for line in ours
    )
    actions = [line for line in ours if "action" in line]
    assert {line["outcome"] for line in actions} == {"done"}
    assert {"CreateAccount", "AddMember", "SetLimits", "CompleteOrder"} <= {
        line["action"] for line in actions
    }
    assert {line["order"] for line in ours if "order" in line} == {order}
    (of_the_pass,) = (line for line in ours if "requests" in line)
    assert of_the_pass["actions"] == len(actions)
    assert of_the_pass["commands"] > 0
    assert [line for line in idle if line["level"] != "warning"] == []
