# SPDX-License-Identifier: MIT
"""What is slow to come is waited for, and what cannot come any more is an error at once. The clock is simulated, the
programs are real.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.host import waiting
from agent.host.children import StopRequest
from agent.host.supervisor import Part, Supervisor
from agent.host.waiting import GIVE_UP_S, NeverCame, wait_until
from rig import processes
from rig.child_process import script_command
from simulator.demo.parts import Children

# Answers by making its second argument, when its first one is there.
LATE = (
    "print('it begins', flush=True); wait_for(sys.argv[1]); open(sys.argv[2], 'w').close(); time.sleep(600)"
)


class Clock:
    """Each pause takes 30 s; `at` a second something happens, and from then on pauses are real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.at: tuple[float, Callable[[], object]] = (GIVE_UP_S * 10, lambda: None)
        monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def pause(self, _: float = 0) -> None:
        moment_s, happen = self.at
        if self.now_s < moment_s:
            self.now_s += 30
        if self.now_s >= moment_s:
            happen()
            time.sleep(0.01)


class SlowRequest(StopRequest):
    """The pauses of what can be stopped, on a simulated clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def pause(self, seconds: float) -> None:
        self._clock.pause()
        super().pause(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_what_answers_after_nine_minutes_is_waited_for(clock: Clock, tmp_path: Path) -> None:
    """And a line each while says what is waited for, and since when."""
    go, answer, said = tmp_path / "go", tmp_path / "answer", list[str]()
    server = processes.start(script_command(LATE, go, answer), log=tmp_path / "log", env=os.environ)
    try:
        clock.at = (540, go.touch)
        ended = lambda: waiting.end_of(server)  # noqa: E731
        wait_until("the server", answer.exists, ended=ended, say=said.append, pause=clock.pause)
        assert answer.exists()
        assert len(said) >= 15
        assert all(re.fullmatch(r"the server: waited for since \d\d:\d\d:\d\d", line) for line in said)
    finally:
        processes.stop(server)


def test_what_hangs_is_given_up_after_ten_minutes(clock: Clock) -> None:
    with pytest.raises(
        NeverCame, match=r"^the server: waited for since \d\d:\d\d:\d\d without success; its log$"
    ):
        wait_until("the server", lambda: False, log=lambda: "its log", pause=clock.pause)
    assert GIVE_UP_S <= clock.now_s < GIVE_UP_S + 60


def test_the_ten_minutes_begin_again_with_each_progress(clock: Clock) -> None:
    last_s = 3 * GIVE_UP_S
    with pytest.raises(NeverCame):
        wait_until("the server", lambda: False, pause=clock.pause, progress=lambda: min(last_s, clock.now_s))
    assert last_s + GIVE_UP_S <= clock.now_s < last_s + GIVE_UP_S + 60


def test_what_has_ended_is_an_error_at_once_with_what_it_said(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = processes.start(["sh", "-c", "echo no memory left; exit 7"], log=log, env=os.environ)
    with pytest.raises(NeverCame, match=r"^the server ended with 7; \S+/log:\nno memory left\n$"):
        processes.wait_until("the server", lambda: False, server, log)


def test_what_a_process_did_last_counts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = processes.start(["sh", "-c", "echo ready"], log=log, env=os.environ)
    server.wait()
    processes.wait_until("the server", lambda: "ready" in log.read_text(), server, log)


def test_the_demo_waits_for_a_part_that_is_slow(clock: Clock, tmp_path: Path) -> None:
    go, answer, said = tmp_path / "go", tmp_path / "answer", list[str]()
    children = Children(tmp_path, SlowRequest(clock), said.append)
    children.start("worker", script_command(LATE, go, answer), os.environ)
    try:
        clock.at = (300, go.touch)
        children.wait("worker", answer.exists)
        assert answer.exists() and said
    finally:
        children.stop()


def test_the_demo_waits_no_longer_when_a_part_has_ended(tmp_path: Path) -> None:
    children = Children(tmp_path, StopRequest(), print)
    children.start("broker", ["sleep", "600"], os.environ)
    children.start("worker", ["sh", "-c", "exit 3"], os.environ)
    try:
        with pytest.raises(NeverCame, match=r"^the orders will not come: worker ended with 3; logs are in /"):
            children.wait_for_work("the orders", lambda: False, 0.01)
        with pytest.raises(
            NeverCame, match=r"^broker will not come: worker ended with 3; \S+/broker.log says: "
        ):
            children.wait("broker", lambda: False)
        assert children.dead() == ["worker ended with 3"]
    finally:
        children.stop()


def test_cluster_waits_for_a_broker_that_is_slow(clock: Clock, tmp_path: Path) -> None:
    go, answer, lines = tmp_path / "go", tmp_path / "answer", list[str]()
    stop_request = SlowRequest(clock)

    def say(name: str, line: str) -> None:
        lines.append(f"{name}: {line}")
        if line == "broker run":
            stop_request.make()

    clock.at = (300, go.touch)
    Supervisor([Part("broker", script_command(LATE, go, answer), os.environ, 5.0, answer.exists)], say).run(
        stop_request
    )
    assert any(re.fullmatch(r"cluster: broker: waited for since \d\d:\d\d:\d\d", line) for line in lines)
    assert "cluster: broker run" in lines
