# SPDX-License-Identifier: MIT
"""One writer per accounting database: who waits, who gives up, and what frees the lock."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.core.errors import BackendError, BackendUnavailable, ClusterBusy
from backends import lock
from backends.lock import WriteLock
from backends.process import Runner
from rig.child_process import child_process, script_command
from rig.processes import REPOSITORY, wait_until
from tests.backends.lock_holder import HOLDER, ORPHAN, is_free


def test_the_lock_is_a_file_of_what_is_written_to_for_its_owner_only(tmp_path: Path) -> None:
    lock = WriteLock(tmp_path / "new" / "state", "c1")
    with lock as descriptor:
        assert lock.path == tmp_path / "new" / "state" / "locks" / "writes-c1.lock"
        assert lock.path.stat().st_mode & 0o777 == 0o600
        assert descriptor > 2


@pytest.mark.parametrize(
    ("target", "name"),
    [("../../etc", "writes-.._.._etc.lock"), ("a b", "writes-a_b.lock"), ("", "writes-.lock")],
)
def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path, target: str, name: str) -> None:
    assert WriteLock(tmp_path, target).path == tmp_path / "locks" / name


def test_another_process_excludes_us_and_the_sentence_says_so(tmp_path: Path) -> None:
    held, go = tmp_path / "held", tmp_path / "go"
    with child_process(script_command(HOLDER, tmp_path, held, go)) as holder:
        wait_until("the lock is held", held.exists)
        with pytest.raises(ClusterBusy, match=r"^c1: another write has held .*writes-c1\.lock") as busy:
            WriteLock(tmp_path, "c1", wait_s=0.1).__enter__()
        assert busy.value.retryable
        assert is_free(tmp_path, "c2")
        go.touch()
        assert holder.wait() == 0
    assert is_free(tmp_path)


def test_who_waits_for_long_is_warned_that_it_may_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimpleNamespace(monotonic=itertools.count().__next__, sleep=lambda _: None)
    monkeypatch.setattr(lock, "time", clock)
    with WriteLock(tmp_path, "c1"), pytest.raises(ClusterBusy):
        WriteLock(tmp_path, "c1", wait_s=100).__enter__()
    assert caplog.text.count("Ctrl-C is safe: ours has not begun") == 1


def test_who_deletes_the_locks_lets_no_second_writer_in(tmp_path: Path) -> None:
    held, go = tmp_path / "held", tmp_path / "go"
    with child_process(script_command(HOLDER, tmp_path, held, go)) as holder:
        wait_until("the lock is held", held.exists)
        shutil.rmtree(tmp_path / "locks")
        assert not is_free(tmp_path)
        assert is_free(tmp_path, "c2")
        (tmp_path / ".writes-c1.lock").unlink()
        assert not is_free(tmp_path)
        go.touch()
        assert holder.wait() == 0
    assert is_free(tmp_path)


def test_a_writer_whose_state_dir_is_deleted_stops_and_no_second_one_comes_in(tmp_path: Path) -> None:
    state = tmp_path / "state"
    done = tmp_path / "done"
    first = WriteLock(state, "c1")
    runner = Runner()
    with first:
        runner.write(["touch", str(done)], first)
        shutil.rmtree(state)
        second = WriteLock(state, "c1", wait_s=0)
        with pytest.raises(ClusterBusy, match=f"deleted under process {os.getpid()}, which still writes"):
            second.__enter__()
        assert not is_free(state), "the next one looks, too"
        with pytest.raises(ClusterBusy, match="was deleted while we held it"):
            runner.write(["rm", str(done)], first)
    assert done.exists(), "it wrote after others could have come in"
    assert is_free(state)
    with first:
        runner.write(["rm", str(done)], first)


def test_who_deletes_the_state_dir_lets_no_process_in_while_another_writes(tmp_path: Path) -> None:
    state, held, go = tmp_path / "state", tmp_path / "held", tmp_path / "go"
    with child_process(script_command(HOLDER, state, held, go)) as holder:
        wait_until("the lock is held", held.exists)
        shutil.rmtree(state)
        assert not is_free(state)
        assert is_free(state, "c2")
        go.touch()
        assert holder.wait() == 0
    assert is_free(state)


def test_a_deleted_lock_that_a_dead_writer_left_to_its_command_lets_nobody_in(tmp_path: Path) -> None:
    state, go = tmp_path / "state", tmp_path / "go"
    with child_process(script_command(ORPHAN, state, go)) as writer:
        assert writer.wait() == 0
    try:
        shutil.rmtree(state)
        assert not is_free(state)
    finally:
        go.touch()
    wait_until("its command has ended", lambda: is_free(state))


def test_so_it_is_in_a_container_where_the_kernel_lists_no_lock_of_the_dead(tmp_path: Path) -> None:
    """Beside `/proc` of a namespace of processes of its own."""
    state, go = tmp_path / "state", tmp_path / "go"
    script = f"""
import os, shutil, subprocess, sys
from pathlib import Path
from tests.backends.lock_holder import is_free
state, orphan = Path(sys.argv[1]), sys.argv[2:]
subprocess.run(orphan, check=True)
assert "FLOCK" not in Path("/proc/locks").read_text()
shutil.rmtree(state)
print(is_free(state))
Path({str(go)!r}).touch()
"""
    container = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*container, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace of processes here (unshare --pid)")
    words = [sys.executable, "-c", script, str(state), *map(str, script_command(ORPHAN, state, go))]
    done = subprocess.run([*container, *words], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_who_waited_for_a_deleted_lock_does_not_enter_beside_the_next(tmp_path: Path) -> None:
    with WriteLock(tmp_path, "c1") as descriptor:
        waiting = WriteLock(tmp_path, "c1", wait_s=600)
        found: list[str] = []

        def enter() -> None:
            try:
                with waiting:
                    found.append("entered")
            except ClusterBusy as busy:
                found.append(str(busy))

        other = threading.Thread(target=enter)
        other.start()
        inode = os.fstat(descriptor).st_ino
        wait_until("it waits", lambda: opened(inode) == 2)
        for path in tmp_path.rglob("*.lock"):
            path.unlink()
        assert not is_free(tmp_path)
    other.join()
    assert is_free(tmp_path)
    assert "was deleted while we waited for it" in found[0]


def opened(inode: int) -> int:
    """Return how often this process has a file open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.stat(f"/proc/self/fd/{name}").st_ino == inode
    return found


def test_a_lock_that_is_freed_in_time_is_ours(tmp_path: Path) -> None:
    held, go = tmp_path / "held", tmp_path / "go"
    with child_process(script_command(HOLDER, tmp_path, held, go)):
        wait_until("the lock is held", held.exists)
        assert not is_free(tmp_path)
        timer = threading.Timer(0.1, go.touch)
        timer.start()
        with WriteLock(tmp_path, "c1", wait_s=600):
            assert go.exists()


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    held = tmp_path / "held"
    with child_process(script_command(HOLDER, tmp_path, held, tmp_path / "never")) as holder:
        wait_until("the lock is held", held.exists)
        holder.kill()
        holder.wait()
        assert is_free(tmp_path)


def test_a_batch_takes_the_lock_once_for_all_its_commands(tmp_path: Path) -> None:
    lock = WriteLock(tmp_path, "c1")
    with lock as outer:
        with lock as inner:
            assert inner == outer
        assert not is_free(tmp_path)
    assert is_free(tmp_path)
    with lock:
        assert not is_free(tmp_path)


def test_an_error_inside_frees_the_lock(tmp_path: Path) -> None:
    lock = WriteLock(tmp_path, "c1")
    with pytest.raises(RuntimeError), lock, lock:
        raise RuntimeError
    assert is_free(tmp_path)


def test_who_gave_up_may_come_again(tmp_path: Path) -> None:
    late = WriteLock(tmp_path, "c1", wait_s=0)
    with WriteLock(tmp_path, "c1"):
        for _ in range(2):
            with pytest.raises(ClusterBusy):
                late.__enter__()
    with late:
        assert not is_free(tmp_path)
    assert is_free(tmp_path)


def test_threads_that_share_a_backend_exclude_each_other_too(tmp_path: Path) -> None:
    """Re-entry is for one thread: two that count as one writer would write at once."""
    lock = WriteLock(tmp_path, "c1", wait_s=0.05)
    results: list[str] = []

    def enter() -> None:
        try:
            with lock:
                results.append("entered")
        except ClusterBusy as busy:
            results.append(str(busy))

    with lock:
        other = threading.Thread(target=enter)
        other.start()
        other.join()
    again = threading.Thread(target=enter)
    again.start()
    again.join()
    assert results == ["c1: another thread has been writing for over 0 s", "entered"]


@pytest.mark.parametrize("kind", ["a file in its way", "a folder of its name", "a system without files"])
def test_a_lock_that_cannot_be_opened_says_what_must_be_writable(tmp_path: Path, kind: str) -> None:
    state = tmp_path
    if kind == "a file in its way":
        (tmp_path / "locks").touch()
    elif kind == "a folder of its name":
        (tmp_path / "locks" / "writes-c1.lock").mkdir(parents=True)
    else:
        state = Path("/proc/1/nowhere")
    with pytest.raises(
        BackendError, match=r"cannot open the write lock .*: .*\. state_dir must be writable"
    ) as error:
        WriteLock(state, "c1").__enter__()
    assert not error.value.retryable


# For those with another state_dir ------------------------------------------------------------------


def test_a_shared_file_keeps_out_those_with_another_state_dir(tmp_path: Path) -> None:
    one, two = (
        WriteLock(tmp_path / name, "c1", wait_s=0, shared=tmp_path / "host" / "c1.lock") for name in "ab"
    )
    with one, pytest.raises(ClusterBusy, match=r"^c1: another write has held .*host/c1\.lock"):
        two.__enter__()
    with two:
        assert len(two.descriptors) == 2
    assert two.descriptors == ()
    with one:
        assert is_free(tmp_path / "b"), "who gave up holds nothing"


def test_a_write_that_outlives_its_starter_holds_the_shared_file_too(tmp_path: Path) -> None:
    shared, go = tmp_path / "host" / "c1.lock", tmp_path / "go"
    with pytest.raises(BackendUnavailable):
        Runner().write(
            script_command("wait_for(sys.argv[1])", go),
            WriteLock(tmp_path / "a", "c1", shared=shared),
            leave_after_s=0.1,
        )
    with pytest.raises(ClusterBusy):
        WriteLock(tmp_path / "b", "c1", wait_s=0, shared=shared).__enter__()
    go.touch()
    with WriteLock(tmp_path / "b", "c1", wait_s=600, shared=shared) as descriptor:
        assert descriptor > 2


def test_without_the_shared_file_writes_go_on_and_it_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "host").touch()
    lock = WriteLock(tmp_path, "c1", shared=tmp_path / "host" / "c1.lock")
    with lock:
        assert not is_free(tmp_path)
    assert is_free(tmp_path)
    assert "writing without the lock" in caplog.text
    assert "Agents on this host with another state_dir are not kept out" in lock.unshared()
    assert WriteLock(tmp_path, "c1").unshared() == ""
    assert WriteLock(tmp_path, "c1", shared=tmp_path / "new" / "c1.lock").unshared() == ""
