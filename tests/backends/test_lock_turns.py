# SPDX-License-Identifier: MIT
"""Who comes first at the lock: orders between two commands of others, and others when a turn is over."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from agent.core.errors import BackendUnavailable, ClusterBusy
from backends import lock
from backends.lock import WriteLock
from backends.process import Runner
from rig.child_process import child_process, script_command
from rig.processes import wait_until
from tests.backends.lock_holder import HOLDER, is_free

pytestmark = pytest.mark.usefixtures("unlimited_courtesy")

# Who comes first -----------------------------------------------------------------------------------


class Waiter(threading.Thread):
    """Waits for the lock, and notes its name when it is in."""

    def __init__(self, state: Path, name: str, entered: list[str], *, is_urgent: bool = False) -> None:
        super().__init__()
        self._lock = WriteLock(state, "c1", wait_s=60, is_urgent=is_urgent)
        self._label, self._entered = name, entered
        self._file = state / "locks" / f"{'urgent' if is_urgent else 'waiting'}-c1.lock"

    def run(self) -> None:
        with self._lock:
            self._entered.append(self._label)

    def waits(self) -> Waiter:
        self.start()
        wait_until("it waits", lambda: lock._is_held(self._file))
        return self


def test_who_waits_for_an_order_is_let_in_between_two_commands(tmp_path: Path) -> None:
    entered: list[str] = []
    with WriteLock(tmp_path, "c1", wait_s=60) as descriptor:
        assert descriptor
    batch = WriteLock(tmp_path, "c1", wait_s=60)
    with batch:
        batch.give_way()
        order = Waiter(tmp_path, "order", entered, is_urgent=True).waits()
        with batch:
            batch.give_way()
            assert entered == [], "not in the middle of what belongs together"
        batch.give_way()
        assert entered == ["order"]
        order.join()
        assert not is_free(tmp_path)
    assert is_free(tmp_path)


def test_others_are_let_in_when_a_turn_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[str] = []
    for is_urgent in (False, True):
        batch = WriteLock(tmp_path, "c1", wait_s=60, is_urgent=is_urgent)
        with batch:
            other = Waiter(tmp_path, "other", entered).waits()
            monkeypatch.setattr(lock, "TURN_S", 600)
            batch.give_way()
            assert entered == []
            monkeypatch.setattr(lock, "TURN_S", 0)
            batch.give_way()
            assert entered == ["other"]
        other.join()
        entered.clear()


def test_orders_come_before_others_who_waited_longer(tmp_path: Path) -> None:
    entered: list[str] = []
    with WriteLock(tmp_path, "c1"):
        waiters = [Waiter(tmp_path, f"other {n}", entered).waits() for n in range(3)]
        waiters.append(Waiter(tmp_path, "order", entered, is_urgent=True).waits())
    for waiter in waiters:
        waiter.join()
    assert entered[0] == "order"
    assert len(entered) == 4


def test_who_waits_and_was_stopped_keeps_no_writer_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "COURTESY_S", 0.1)
    monkeypatch.setattr(lock, "TURN_S", 0)
    (tmp_path / "locks").mkdir()
    stopped = [(tmp_path / "locks" / f"{kind}-c1.lock").open("w") for kind in ("urgent", "waiting")]
    for stream in stopped:
        fcntl.flock(stream, fcntl.LOCK_SH)
    batch = WriteLock(tmp_path, "c1", wait_s=60)
    with batch:
        batch.give_way()
        assert not is_free(tmp_path)
    for stream in stopped:
        stream.close()


def test_a_command_that_outlives_its_starter_lets_no_writer_in_when_that_gives_way(tmp_path: Path) -> None:
    go, entered = tmp_path / "go", list[str]()
    batch = WriteLock(tmp_path, "c1", wait_s=60)
    with batch:
        with pytest.raises(BackendUnavailable):
            Runner().write(script_command("wait_for(sys.argv[1])", go), batch, leave_after_s=0.1)
        order = Waiter(tmp_path, "order", entered, is_urgent=True).waits()
        timer = threading.Timer(0.3, lambda: (entered.append("command ends"), go.touch()))
        timer.start()
        batch.give_way()
    order.join()
    assert entered == ["command ends", "order"]


def test_who_does_not_get_the_lock_back_goes_on_without_none(tmp_path: Path) -> None:
    held, go = tmp_path / "held", tmp_path / "go"
    batch = WriteLock(tmp_path, "c1", wait_s=0.2)
    holder = HOLDER.replace('"c1")', '"c1", is_urgent=True)')
    with batch, child_process(script_command(holder, tmp_path, held, go)):
        wait_until("it waits", lambda: lock._is_held(tmp_path / "locks" / "urgent-c1.lock"))
        with pytest.raises(ClusterBusy):
            batch.give_way()
        with pytest.raises(ClusterBusy):
            batch.__enter__()
    assert is_free(tmp_path)
