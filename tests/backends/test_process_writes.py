# SPDX-License-Identifier: MIT
"""Writes: they are never killed, hold the lock until their end, and answer questions."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.core.errors import BackendError, BackendUnavailable, ClusterBusy
from backends.lock import WriteLock
from backends.process import Runner
from rig.child_process import child_process, is_alive, script_command
from rig.processes import wait_until
from tests.backends.interruption import Interrupted, interrupted_in

# Writes -------------------------------------------------------------------------------------------

SLOW_WRITE = """
begun, go, done = sys.argv[1:]
open(begun, 'w').write(str(os.getpid()))
wait_for(go)
print('x' * 100_000, flush=True)
print('still here', file=sys.stderr, flush=True)
open(done, 'w').close()
"""
WRITER = """
from pathlib import Path
from backends.lock import WriteLock
from backends.process import Runner
state, script, *arguments = sys.argv[1:]
Runner().write([sys.executable, "-c", script, *arguments], WriteLock(Path(state), "c1"))
"""


class Marks:
    """The files through which a slow write reports how far it is, and gets the word to go on."""

    def __init__(self, folder: Path) -> None:
        self.begun, self.go, self.done = (folder / name for name in ("begun", "go", "done"))

    def has_begun(self) -> bool:
        return self.begun.exists() and bool(self.begun.read_text())

    @property
    def pid(self) -> int:
        return int(self.begun.read_text())

    def script(self) -> list[str]:
        return script_command(SLOW_WRITE, self.begun, self.go, self.done)


def is_locked(lock: WriteLock) -> bool:
    try:
        with lock:
            return False
    except ClusterBusy:
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_write_survives_the_end_of_who_started_it_and_holds_the_lock_until_its_own(
    tmp_path: Path, lock: WriteLock, number: signal.Signals
) -> None:
    marks = Marks(tmp_path)
    arguments = marks.script()[2:]
    with child_process(script_command(WRITER, tmp_path, *arguments)) as writer:
        wait_until("the write has begun", marks.has_begun)
        assert is_locked(lock)
        writer.send_signal(number)
        writer.wait()
    assert is_alive(marks.pid)
    assert is_locked(lock)
    assert not marks.done.exists()
    marks.go.touch()
    wait_until("the write is done", marks.done.exists)
    wait_until("the lock is free", lambda: not is_locked(lock))
    wait_until("the write has ended", lambda: not is_alive(marks.pid))  # it closes its files first


def test_an_interrupted_writer_leaves_its_write_running_under_the_lock(
    tmp_path: Path, lock: WriteLock
) -> None:
    marks = Marks(tmp_path)
    with pytest.raises(Interrupted), interrupted_in("wait", marks.begun):
        Runner().write(marks.script(), lock)
    assert is_alive(marks.pid)
    assert is_locked(lock)
    marks.go.touch()
    wait_until("the write is done", marks.done.exists)
    wait_until("the lock is free", lambda: not is_locked(lock))


def test_a_write_waits_for_another_one_and_gives_up_without_starting(tmp_path: Path, lock: WriteLock) -> None:
    begun = tmp_path / "begun"
    runner = Runner()
    with WriteLock(tmp_path, "c1"), pytest.raises(ClusterBusy):
        runner.write(["touch", str(begun)], lock)
    assert not begun.exists()
    assert not runner.executed
    assert runner.write(["touch", str(begun)], lock).returncode == 0
    assert begun.exists()


def test_a_read_does_not_keep_the_lock(tmp_path: Path, lock: WriteLock) -> None:
    marks = Marks(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        with lock:
            reading = pool.submit(Runner().read, marks.script())
            wait_until("the read has begun", marks.has_begun)
        assert not is_locked(lock)
        marks.go.touch()
        assert reading.result().returncode == 0


def test_a_command_that_is_still_running_in_the_background_keeps_the_lock(
    tmp_path: Path, lock: WriteLock
) -> None:
    """`docker exec` and wrappers may return before what they started: the lock lasts as long as anybody has it."""
    marks = Marks(tmp_path)
    starter = "import subprocess; subprocess.Popen([sys.executable, '-c', *sys.argv[1:]], close_fds=False)"
    assert Runner().write(script_command(starter, *marks.script()[2:]), lock).returncode == 0
    wait_until("the background write has begun", marks.has_begun)
    assert is_locked(lock)
    marks.go.touch()
    wait_until("the lock is free", lambda: not is_locked(lock))


def test_a_write_that_may_be_left_is_left_running_under_its_lock(tmp_path: Path, lock: WriteLock) -> None:
    marks = Marks(tmp_path)
    with pytest.raises(BackendUnavailable, match="left to finish"):
        Runner().write(marks.script(), lock, leave_after_s=0.5)
    wait_until("the write has begun", marks.has_begun)
    assert is_alive(marks.pid)
    assert is_locked(lock)
    marks.go.touch()
    wait_until("the write is done", marks.done.exists)
    wait_until("the lock is free", lambda: not is_locked(lock))


# Writes that ask -----------------------------------------------------------------------------------

# Like sacctmgr: at the end of its input it asks again, without end.
ASKING = """
begun, go, done = sys.argv[1:]
open(begun, 'w').write(str(os.getpid()))
wait_for(go)
print('would add two', file=sys.stderr)
print('one\\ntwo\\nsure? ', end='', flush=True)
while not (line := sys.stdin.readline()):
    print('sure? ', end='', flush=True)
open(done, 'w').write(line)
print('kept' if line == 'y\\n' else 'discarded')
"""
ASKER = """
from pathlib import Path
from backends.lock import WriteLock
from backends.process import Runner
state, script, *arguments = sys.argv[1:]
lock = WriteLock(Path(state), "c1")
Runner().write_after_question([sys.executable, "-c", script, *arguments], lock, "sure? ", lambda *_: "y\\n")
"""


def test_a_write_that_asks_gets_its_answer_for_what_it_said(tmp_path: Path, lock: WriteLock) -> None:
    said = []

    def answer(stdout: str, stderr: str) -> str:
        said.append((stdout, stderr))
        return "y\n"

    (tmp_path / "go").touch()
    names = [tmp_path / name for name in ("begun", "go", "done")]
    done = Runner().write_after_question(script_command(ASKING, *names), lock, "sure? ", answer)
    assert said == [("one\ntwo\nsure? ", "would add two\n")]
    assert (done.returncode, done.stdout) == (0, "one\ntwo\nsure? kept\n")


def test_a_write_that_does_not_ask_gets_no_answer(lock: WriteLock) -> None:
    done = Runner().write_after_question(
        ["sh", "-c", "echo nothing; exit 3"], lock, "sure? ", lambda *_: "y\n"
    )
    assert (done.returncode, done.stdout) == (3, "nothing\n")


def test_a_write_that_asks_without_end_is_stopped(lock: WriteLock) -> None:
    with pytest.raises(BackendError, match="was stopped: it printed"):
        Runner(output_limit_bytes=10_000).write_after_question(
            script_command("while True: sys.stdout.write('x' * 1000)"), lock, "sure? ", lambda *_: "n\n"
        )


def test_a_write_whose_asker_was_killed_ends_at_its_question_and_holds_the_lock_until_then(
    tmp_path: Path, lock: WriteLock
) -> None:
    begun, go, done = (tmp_path / name for name in ("begun", "go", "done"))
    child = script_command(ASKING)[2]
    with child_process(script_command(ASKER, tmp_path, child, begun, go, done)) as asker:
        wait_until("the write has begun", lambda: begun.exists() and begun.read_text())
        asker.kill()
        asker.wait()
    pid = int(begun.read_text())
    with pytest.raises(ClusterBusy):
        lock.__enter__()
    go.touch()
    wait_until("the write has ended", lambda: not is_alive(pid))
    assert not done.exists()
    with lock:
        pass
