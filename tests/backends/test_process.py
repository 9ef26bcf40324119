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

import pytest

from agent.core.errors import BackendError, BackendUnavailable
from backends.lock import WriteLock
from backends.process import READS_AT_ONCE, CommandMissing, Runner
from rig.child_process import is_alive, script_command
from rig.processes import REPOSITORY, wait_until
from tests.agent.state.conftest import needs_root
from tests.backends.interruption import Interrupted, interrupted_in, killed_when_begun

PRINT_ARGUMENTS = "import json; print(json.dumps(sys.argv[1:]))"
PRINT_ENVIRONMENT = "import json; print(json.dumps(dict(os.environ)))"
PRINT_FILES = (
    "print(*(name for name in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + name)))"
)


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
    script = 'sleep 987 & echo "$$ $!" > "$0"; echo "waiting for slurmdbd" >&2; wait'
    killed_when_begun(
        lambda timeout_s: Runner().read(["sh", "-c", script, str(pids)], timeout_s=timeout_s),
        lambda said: said.endswith(": waiting for slurmdbd"),
    )
    leader, grandchild = map(int, pids.read_text().split())
    wait_until("both are gone", lambda: not is_alive(leader) and not is_alive(grandchild))


def test_a_read_is_killed_when_its_reader_is_interrupted(tmp_path: Path) -> None:
    """As by Celery's soft time limit, which raises in the main thread."""
    pid = tmp_path / "pid"
    with pytest.raises(Interrupted), interrupted_in("wait", pid):
        Runner().read(script_command("open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(987)", pid))
    assert not is_alive(int(pid.read_text()))


ENDLESS = {
    "until it is stopped": "while True: sys.stdout.write('x' * 1000)",
    "on the other stream": "while True: sys.stderr.write('x' * 1000)",
    "though it gets the error that the file is full": (
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
