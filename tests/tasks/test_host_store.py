# SPDX-License-Identifier: MIT
"""The lock files by which processes of one host see which of them live."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from tasks.queue import work
from tasks.queue.stores import HostStore
from tasks.queue.work import WorkQueue

PROCESSES = 4


def test_lock_files_of_processes_that_have_ended_do_not_pile_up(tmp_path: Path) -> None:
    """A pool replaces its processes, each with a file of its own, all day."""
    context: Any = multiprocessing.get_context("fork")
    mine = HostStore(tmp_path).process()

    def live(pipe: Any) -> None:
        pipe.send(HostStore(tmp_path).process())
        pipe.recv()

    def files() -> set[str]:
        return {path.stem for path in tmp_path.glob("*.lock")} - {"guard"}

    def started() -> tuple[Any, Any, str]:
        there, here = context.Pipe()
        process = context.Process(target=live, args=(there,))
        process.start()
        return process, here, here.recv()

    lives, pipe, name = started()
    for _ in range(5):
        killed, _, last = started()
        assert files() == {mine, name, last}, "the one before is cleared, and none that lives"
        killed.kill()
        killed.join()
    store = HostStore(tmp_path)
    assert (store.has_ended(mine), store.has_ended(name), store.has_ended(last)) == (False, False, True)
    pipe.send("end")
    lives.join()


def test_no_lock_file_is_cleared_between_its_making_and_its_locking(tmp_path: Path) -> None:
    """Processes that begin at once clear what others left: each one's file is there, and held, as long as it lives."""
    context: Any = multiprocessing.get_context("fork")
    faults, names = context.Value("i", 0), context.SimpleQueue()
    for number in range(50):
        (tmp_path / f"{number:032x}.lock").touch()

    def begin() -> None:
        for _ in range(50):
            store, other = HostStore(tmp_path), HostStore(tmp_path)
            name = store.process()
            with other._guarded():
                faults.value += other.has_ended(name)
        names.put(name)

    running = [context.Process(target=begin) for _ in range(PROCESSES)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert faults.value == 0 and len({names.get() for _ in running}) == PROCESSES
    assert HostStore(tmp_path).process() in {path.stem for path in tmp_path.glob("*.lock")}
    assert len(list(tmp_path.glob("*.lock"))) == 2


def test_a_disk_that_was_full_at_the_end_of_a_work_does_not_keep_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work.time, "sleep", lambda _: None)
    queue = WorkQueue(HostStore(tmp_path), lambda _: None)
    with queue.at_work("k"):
        # What stands in the way of the new file refuses it as a full disk does.
        (tmp_path / "records.new").mkdir()
    (tmp_path / "records.new").rmdir()
    assert queue.take("k") is not None
    assert queue.take("k") is None
