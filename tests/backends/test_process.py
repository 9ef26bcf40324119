# SPDX-License-Identifier: MIT
"""Processes: what they get, what we get back, and that reads can be killed and writes never are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import pytest

from agent.core.errors import BackendError, BackendUnavailable, ClusterBusy
from backends.lock import WriteLock
from backends.process import READS_AT_ONCE, CommandMissing, Runner
from rig.child_process import child_process, is_alive, script_command
from rig.processes import REPOSITORY, wait_until
from tests.state.conftest import needs_root

PRINT_ARGUMENTS = "import json; print(json.dumps(sys.argv[1:]))"
PRINT_ENVIRONMENT = "import json; print(json.dumps(dict(os.environ)))"
PRINT_FILES = (
    "print(*(name for name in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + name)))"
)


@pytest.fixture
def lock(tmp_path: Path) -> WriteLock:
    return WriteLock(tmp_path, "c1", wait_s=0)


# What a child gets --------------------------------------------------------------------------------

HARMFUL = {
    "SACCT_FORMAT": "JobID",
    "SQUEUE_FORMAT": "%i",
    "SQUEUE_FORMAT2": "jobid",
    "SINFO_FORMAT": "%n",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_CLUSTERS": "other",
    "SLURM_BITSTR_LEN": "1",
    "SACCTMGR_FORMAT": "x",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "de_DE.UTF-8",
    "LC_TIME": "de_DE.UTF-8",
    "LANGUAGE": "de",
    "TZ": "Asia/Tokyo",
    "WALDUR_API_TOKEN": "secret",
    "LD_PRELOAD": "",
    "PYTHONWARNINGS": "ignore",
}
OF_A_CLUSTER = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_JWT": "x", "SLURM_EMULATOR_STATE_FILE": "/srv/state"}


def test_a_child_gets_nothing_that_changes_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**HARMFUL, **OF_A_CLUSTER}.items():
        monkeypatch.setenv(name, value)
    environment = json.loads(Runner().read(script_command(PRINT_ENVIRONMENT)).stdout)
    assert environment["LC_ALL"] == "C.UTF-8"
    assert environment["TZ"] == "UTC"
    assert environment.keys() & (HARMFUL | OF_A_CLUSTER).keys() == {"LC_ALL", "TZ"}
    assert environment["PATH"] == os.environ["PATH"]


def test_a_backend_names_what_its_programs_need_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**HARMFUL, **OF_A_CLUSTER}.items():
        monkeypatch.setenv(name, value)
    runner = Runner(passed_on=["SLURM_CONF", "SLURM_EMULATOR_*"])
    environment = json.loads(runner.read(script_command(PRINT_ENVIRONMENT)).stdout)
    passed = {"SLURM_CONF", "SLURM_EMULATOR_STATE_FILE"}
    assert environment.keys() & (HARMFUL | OF_A_CLUSTER).keys() == {"LC_ALL", "TZ"} | passed
    assert {name: environment[name] for name in passed} == {name: OF_A_CLUSTER[name] for name in passed}


def test_what_a_backend_adds_wins() -> None:
    runner = Runner(environment={"TZ": "Europe/Tallinn", "X": "1"})
    environment = json.loads(runner.read(script_command(PRINT_ENVIRONMENT)).stdout)
    assert (environment["TZ"], environment["X"]) == ("Europe/Tallinn", "1")


WORDS = ["; rm -rf /", "$(id)", "`id`", "*", "a b", "'", '"', "", "-x", "new\nline", "ünï", "a=b,c[1-2]|d"]


def test_words_reach_the_program_as_they_are() -> None:
    done = Runner().read(script_command(PRINT_ARGUMENTS, *WORDS))
    assert json.loads(done.stdout) == WORDS
    assert done.argv[-len(WORDS) :] == tuple(WORDS)


def test_a_prefix_goes_before_every_command(lock: WriteLock) -> None:
    runner = Runner(prefix=[sys.executable, "-c", "import sys; print(sys.argv[1:])"])
    assert runner.argv(["sacctmgr", "show"])[-2:] == ("sacctmgr", "show")
    for done in (runner.read(["sacctmgr", "show"]), runner.write(["sacctmgr", "show"], lock)):
        assert done.stdout == "['sacctmgr', 'show']\n"
        assert done.argv == runner.argv(["sacctmgr", "show"])
    assert runner.prefixed
    assert not Runner().prefixed


def test_a_read_finds_the_end_of_its_input_at_once() -> None:
    assert Runner().read(["cat"]).stdout == ""


def test_a_write_finds_the_end_of_its_input_at_once(lock: WriteLock) -> None:
    assert Runner().write(["cat"], lock).stdout == ""


def test_children_stand_in_sessions_of_their_own(lock: WriteLock) -> None:
    script = script_command("print(os.getsid(0) == os.getpid() == os.getpgid(0))")
    assert Runner().read(script).stdout == "True\n"
    assert Runner().write(script, lock).stdout == "True\n"


def test_a_read_inherits_no_file_and_a_write_only_the_lock(lock: WriteLock) -> None:
    with lock as descriptor:
        assert Runner().read(script_command(PRINT_FILES)).stdout.split() == ["0", "1", "2"]
        assert Runner().write(script_command(PRINT_FILES), lock).stdout.split() == [
            "0",
            "1",
            "2",
            str(descriptor),
        ]


# What comes back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 77])
def test_streams_come_back_apart_with_code_and_duration(lock: WriteLock, code: int) -> None:
    script = script_command("print('out'); print('err', file=sys.stderr); sys.exit(int(sys.argv[1]))", code)
    for done in (Runner().read(script), Runner().write(script, lock)):
        assert (done.returncode, done.stdout, done.stderr) == (code, "out\n", "err\n")
        assert done.duration_s > 0


def test_a_signal_is_a_negative_code() -> None:
    assert Runner().read(script_command("os.kill(os.getpid(), 9)")).returncode == -signal.SIGKILL


def test_undecodable_bytes_are_replaced() -> None:
    done = Runner().read(
        script_command(r"sys.stdout.buffer.write(b'a\xff\xc3b\n'); sys.stderr.buffer.write(b'\xe9')")
    )
    assert done.stdout == "a\ufffd\ufffdb\n"
    assert done.stderr == "\ufffd"


def test_much_output_on_both_streams_does_not_stop_a_command() -> None:
    done = Runner().read(script_command("sys.stderr.write('e' * 10**6); sys.stdout.write('o' * 10**6)"))
    assert (len(done.stdout), len(done.stderr)) == (10**6, 10**6)


MISSING: dict[str, tuple[list[str], str]] = {
    "no such program": (["/nowhere/sacctmgr"], "cannot start `/nowhere/sacctmgr`: No such file or directory"),
    "not on the path": (["no-such-program-x"], "cannot start `no-such-program-x`: No such file or directory"),
    "no program": (["/etc/passwd"], "cannot start `/etc/passwd`: Permission denied"),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_program_that_cannot_start_is_named_with_what_to_check(lock: WriteLock, kind: str) -> None:
    argv, words = MISSING[kind]
    runner = Runner(keys="some_path or command_prefix")
    with pytest.raises(CommandMissing, match=rf"^{words}\. Check some_path or command_prefix, and that"):
        runner.read(argv)
    with pytest.raises(CommandMissing, match=words):
        runner.write(argv, lock)
    assert not runner.executed
    with lock:
        assert True, "it is free again"


def test_too_long_a_command_is_no_program_that_is_missing(lock: WriteLock) -> None:
    words = (
        r"^cannot start `echo`: Argument list too long \(200004 characters in 2 words, .* No setting is wrong"
    )
    for start in (Runner().read, lambda argv: Runner().write(argv, lock)):
        with pytest.raises(BackendError, match=words) as error:
            start(["echo", "x" * 200_000])
        assert not isinstance(error.value, CommandMissing)
        assert not error.value.retryable


SHORT = """
import resource
from pathlib import Path
from agent.core.errors import BackendUnavailable
from backends.lock import WriteLock
from backends.process import Runner
kind, folder = sys.argv[1:]
lock = WriteLock(Path(folder), "c1")
with lock:
    pass
if kind == "processes":
    os.setgid(12345)
    os.setuid(12345)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    attempts = [lambda: Runner().read(["true"])]
else:
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(kind), int(kind)))
    attempts = [lambda: Runner().read(["true"]), lambda: Runner().write(["true"], lock)]
    if kind == "3":
        attempts.append(lock.check)
for attempt in attempts:
    try:
        attempt()
        sys.exit("no error")
    except BackendUnavailable as error:
        print(error.retryable, error)
"""


@pytest.mark.parametrize("kind", ["3", "4", "5", "6", pytest.param("processes", marks=needs_root)])
def test_a_host_that_is_short_of_something_is_asked_again_and_no_setting_is_blamed(
    tmp_path: Path, kind: str
) -> None:
    argv = script_command(SHORT, kind, tmp_path)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("True cannot") == len(done.stdout.splitlines()) > 0
    assert "Check PATH" not in done.stdout


def test_processes_are_counted_by_kind(lock: WriteLock) -> None:
    runner = Runner()
    runner.read(["true"])
    runner.read(["false"])
    runner.write(["true"], lock)
    assert runner.executed == {"read": 2, "write": 1}


# Reads --------------------------------------------------------------------------------------------


def test_a_read_that_does_not_end_is_killed_with_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = 'sleep 987 & echo "waiting for slurmdbd" >&2; echo "$$ $!" > "$0"; wait'
    with pytest.raises(BackendUnavailable, match="gave no answer within 1 s: waiting for slurmdbd"):
        Runner().read(["sh", "-c", script, str(pids)], timeout_s=1)
    leader, grandchild = map(int, pids.read_text().split())
    wait_until("both are gone", lambda: not is_alive(leader) and not is_alive(grandchild))


def test_a_read_is_killed_when_its_reader_is_interrupted(tmp_path: Path) -> None:
    """As by Celery's soft time limit, which raises in the main thread."""
    pid = tmp_path / "pid"
    with pytest.raises(Interrupted), interrupted_when(pid):
        Runner().read(script_command("open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(987)", pid))
    assert not is_alive(int(pid.read_text()))


ENDLESS = {
    "until it is stopped": "while True: sys.stdout.write('x' * 1000)",
    "on the other stream": "while True: sys.stderr.write('x' * 1000)",
    "though it is told that the file is full": (
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "for _ in range(100):\n"
        "    try: os.write(1, b'x' * 1000)\n"
        "    except OSError: pass"
    ),
}


@pytest.mark.parametrize("how", ENDLESS)
def test_a_read_that_prints_without_end_is_stopped_and_its_output_not_used(how: str) -> None:
    with pytest.raises(BackendError, match="was stopped: it printed 10000 bytes and more") as error:
        Runner(output_limit_bytes=10_000).read(script_command(ENDLESS[how]))
    assert not isinstance(error.value, BackendUnavailable)


def test_output_below_the_limit_is_whole() -> None:
    done = Runner(output_limit_bytes=10_000).read(script_command("sys.stdout.write('x' * 9999)"))
    assert len(done.stdout) == 9999


def test_only_so_many_reads_run_at_once(tmp_path: Path) -> None:
    script = script_command(
        "mine = os.path.join(sys.argv[1], str(os.getpid())); open(mine, 'w').close()\n"
        "time.sleep(0.05); print(len(os.listdir(sys.argv[1]))); os.remove(mine)",
        tmp_path,
    )
    runner = Runner()
    with ThreadPoolExecutor(3 * READS_AT_ONCE) as pool:
        seen = [int(done.stdout) for done in pool.map(runner.read, [script] * 3 * READS_AT_ONCE)]
    assert max(seen) <= READS_AT_ONCE


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


class Interrupted(BaseException):
    """Stands for a time limit that strikes in the middle of anything."""


class interrupted_when:  # noqa: N801
    """Raises Interrupted in the main thread as soon as a file has been written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._strike)
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        if self._path.exists() and self._path.read_text():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise Interrupted


class Marks:
    """The files through which a slow write tells how far it is, and is told to go on."""

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
        writer.wait(60)
    assert is_alive(marks.pid)
    assert is_locked(lock)
    assert not marks.done.exists()
    marks.go.touch()
    wait_until("the write is done", marks.done.exists)
    wait_until("the lock is free", lambda: not is_locked(lock))
    assert not is_alive(marks.pid)


def test_an_interrupted_writer_leaves_its_write_running_under_the_lock(
    tmp_path: Path, lock: WriteLock
) -> None:
    marks = Marks(tmp_path)
    with pytest.raises(Interrupted), interrupted_when(marks.begun):
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
        assert reading.result(60).returncode == 0


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
            script_command(ENDLESS["until it is stopped"]), lock, "sure? ", lambda *_: "n\n"
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
