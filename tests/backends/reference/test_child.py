# SPDX-License-Identifier: MIT
"""The plugin's process: what it gets, what it prints, how it ends, and that nothing of it is left."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import BackendUnavailable, PluginFailed
from backends.dialogue import LOGGED_LINES, Ended
from backends.reference import child as children
from rig import plugin_venv
from rig.child_process import is_alive
from rig.processes import REPOSITORY, wait_until
from tests.backends.interruption import killed_when_begun
from tests.backends.reference.conftest import Started

ONE = {"TOTAL_ACCOUNT_USAGE": {"cpu": 1}}
SHOW_PID = 'return {TOTAL: {"cpu": os.getpid()}}'


def pid_of(found: Any) -> int:
    return int(found["TOTAL_ACCOUNT_USAGE"]["cpu"])


def ask(child: children.Child, account: str = "a", **options: Any) -> Any:
    return child.ask("usage", account=account, **options)


def test_one_process_answers_many_questions(started: Started) -> None:
    child = started(f"def used(self, account):\n    {SHOW_PID}", before="import os")
    pids = {pid_of(ask(child, f"a{n}")) for n in range(5)}
    assert len(pids) == 1
    assert child.executed == {"read": 1}


def test_it_leads_a_session_of_its_own(started: Started) -> None:
    child = started(f"def used(self, account):\n    {SHOW_PID}", before="import os")
    pid = pid_of(ask(child))
    assert os.getsid(pid) == pid == os.getpgid(pid)


def test_our_environment_and_token_stay_here(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WALDUR_TOKEN", "SENTRY_DSN", "BROKER_URL", "PYTHONPATH"):
        monkeypatch.setenv(name, "hidden-value")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/ca.pem")
    text = "def used(self, account):\n    return {TOTAL: {}, **{name: {} for name in os.environ}}"
    names = set(ask(started(text, before="import os", password="top-secret")))
    assert {"HTTPS_PROXY", "SSL_CERT_FILE", "PATH", "TZ"} <= names
    assert not names & {"WALDUR_TOKEN", "SENTRY_DSN", "BROKER_URL", "PYTHONPATH"}


def test_settings_are_in_no_argument_and_our_modules_are_out_of_reach(started: Started) -> None:
    text = """
    def used(self, account):
        words = open("/proc/self/cmdline").read() + open("/proc/self/environ").read()
        found = importlib.util.find_spec("backends") or importlib.util.find_spec("host")
        return {TOTAL: {"cpu": words.count("top-secret") + (found is not None)}}
    """
    found = ask(started(text, before="import importlib.util", password="top-secret"))
    assert pid_of(found) == 0


def test_what_it_prints_goes_to_the_log_without_secrets(
    started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    text = """
    def used(self, account):
        print('{"value": 5}')
        print("the password is", self.settings["password"], end="\\x1b[2J\\n")
        os.write(1, b"by the system\\n")
        subprocess.run(["echo", "by a child"])
        logging.getLogger("tally").info("by logging")
        return {TOTAL: {"cpu": 1}}
    """
    child = started(text, before="import os, subprocess", secrets=("top-secret",), password="top-secret")
    assert ask(child) == ONE
    for said in ('{"value": 5}', "the password is ***\\x1b[2J", "by the system", "by a child", "by logging"):
        assert said in caplog.text
    assert "top-secret" not in caplog.text


def test_a_flood_of_lines_is_cut(started: Started, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    text = "def used(self, account):\n    print('flood\\n' * 100_000 + 'x' * 1_000_000)\n    return {TOTAL: {'cpu': 1}}"
    assert ask(started(text)) == ONE
    assert caplog.text.count(": flood") == LOGGED_LINES
    assert caplog.text.count("prints more") == 1
    assert max(len(record.message) for record in caplog.records) < 2000


def test_a_plugin_that_hangs_is_ended(started: Started, tmp_path: Path) -> None:
    text = """
    def used(self, account):
        open(account, "w").write(str(os.getpid()))
        print("I wait")
        time.sleep(3600)
    """
    child, file = started(text, before="import os, time"), tmp_path / "pid"
    said = killed_when_begun(
        lambda timeout_s: ask(child, str(file), timeout_s=timeout_s), lambda error: error.endswith(": I wait")
    )
    assert said.startswith("plugin tally in ")
    assert not is_alive(int(file.read_text()))


ENDS = {
    "os._exit(3)": "ended with 3 before it answered",
    "os.kill(os.getpid(), 9)": "was ended by SIGKILL before it answered",
    "os.abort()": "was ended by SIGABRT before it answered",
    "os.kill(os.getpid(), 40)": "was ended by signal 40 before it answered",
    "print('no memory'); os._exit(0)": "ended with 0 before it answered: no memory",
}


@pytest.mark.parametrize(("body", "how"), ENDS.items())
def test_a_plugin_that_dies_says_how(
    started: Started, monkeypatch: pytest.MonkeyPatch, body: str, how: str
) -> None:
    # A Python that was built on an old system does not have it.
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    child = started(f"def used(self, account):\n    {body}", before="import os")
    with pytest.raises(Ended) as caught:
        ask(child)
    assert how in str(caught.value)
    with pytest.raises(Ended):
        ask(child)
    assert child.executed == {"read": 2}


def written(text: str) -> str:
    """A plugin that finds the pipe of the answers, and writes to it itself."""
    return f"""
    def used(self, account):
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
                is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
            except OSError:
                continue
            if number > 2 and is_pipe and mode == os.O_WRONLY:
                os.write(number, {text})
        os._exit(0)
    """


HALVES = {
    "b'{\"value\": 1'": "ended with 0 in the middle of its answer",
    "b'{\"value\": \\n'": "which is no answer",
    "b'[]\\n'": "which is no answer",
    "b'{\"value\": 1}\\n{'": "more than one answer",
    "b'[' * 500 + b'\\n'": "which is no answer",
    "b'\\xff\\n'": "which is no answer",
}


@pytest.mark.parametrize(("text", "reason"), HALVES.items())
def test_half_a_line_is_no_answer(started: Started, text: str, reason: str) -> None:
    child = started(written(text), before="import fcntl, os, stat")
    with pytest.raises(BackendUnavailable, match=reason):
        ask(child)


def test_an_answer_has_a_largest_size(started: Started) -> None:
    text = "def used(self, account):\n    return {TOTAL: {'x' * 1000 + str(n): 1 for n in range(30_000)}}"
    with pytest.raises(BackendUnavailable, match="answered with more than 16777216 bytes"):
        ask(started(text))


def test_a_fork_that_comes_back_gives_no_second_answer(started: Started) -> None:
    child = started("def used(self, account):\n    return {TOTAL: {'cpu': os.fork()}}", before="import os")
    forks = [pid_of(ask(child)) for _ in range(3)]
    assert child.executed == {"read": 1}
    for pid in forks:
        wait_until("the end of a fork", lambda pid=pid: not is_alive(pid))


def test_what_it_started_ends_with_it(started: Started, tmp_path: Path) -> None:
    text = """
    def used(self, account):
        if not (pid := os.fork()):
            time.sleep(3600)
        other = subprocess.Popen(["sleep", "3600"])
        open(account, "w").write(f"{pid} {other.pid}")
        os._exit(1)
    """
    file = tmp_path / "pids"
    with pytest.raises(Ended):
        ask(started(text, before="import os, subprocess, time"), str(file))
    for pid in map(int, file.read_text().split()):
        wait_until("the end of what it started", lambda pid=pid: not is_alive(pid))


def test_an_idle_process_ends_and_the_next_question_starts_another(started: Started) -> None:
    child = started(f"def used(self, account):\n    {SHOW_PID}", before="import os")
    first = pid_of(ask(child))
    *command, idle_s = Path(f"/proc/{first}/cmdline").read_text().rstrip("\0").split("\0")
    assert float(idle_s) == children.IDLE_S
    with subprocess.Popen([*command, "0.2"], stdin=subprocess.PIPE, start_new_session=True) as idle:
        assert idle.wait(timeout=600) == -signal.SIGKILL
    os.kill(first, signal.SIGKILL)
    wait_until("its end", lambda: not is_alive(first))
    assert pid_of(ask(child)) != first
    assert child.executed == {"read": 2}


def test_a_fork_of_ours_starts_its_own_and_leaves_the_first(started: Started) -> None:
    """As a worker forks its pool."""
    child = started(f"def used(self, account):\n    {SHOW_PID}", before="import os")
    first = pid_of(ask(child))
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writing, str(pid_of(ask(child))).encode())
            child.end()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as other:
        os.close(writing)
        assert int(other.read()) != first
    assert pid_of(ask(child)) == first


def test_it_ends_when_its_worker_is_killed(tmp_path: Path) -> None:
    text = 'def used(self, account):\n    open(account, "w").write(str(os.getpid()))\n    time.sleep(3600)'
    venv, file = plugin_venv.make(tmp_path, text, before="import os, time"), tmp_path / "pid"
    script = (
        "import sys; from pathlib import Path; from tests.backends.reference.conftest import hosted;"
        "from backends.reference.child import Child;"
        "Child(hosted(Path(sys.argv[1])), 'UTC').ask('usage', account=sys.argv[2])"
    )
    worker = subprocess.Popen([sys.executable, "-c", script, str(venv), str(file)], cwd=REPOSITORY)
    wait_until("the question", lambda: file.exists() and file.read_text() != "", worker)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    wait_until("the end of the plugin", lambda: not is_alive(int(file.read_text())))


def test_a_plugin_that_cannot_be_imported_says_why(started: Started) -> None:
    child = started(before="raise ImportError('libfoo is missing')")
    with pytest.raises(BackendUnavailable, match="failed at open: ImportError: libfoo is missing"):
        ask(child)
    with pytest.raises(BackendUnavailable, match="failed at open"):
        ask(child)


def test_secrets_are_in_no_error(started: Started) -> None:
    text = "def used(self, account):\n    raise ValueError('401 for top-secret')"
    child = started(text, secrets=("top-secret",), password="top-secret")
    with pytest.raises(PluginFailed, match=r"failed at usage: ValueError: 401 for \*\*\*$"):
        ask(child)


def test_a_large_question_reaches_it(started: Started) -> None:
    settings = {"map": ["x" * 1000] * 2000}
    child = started(
        "def used(self, account):\n    return {TOTAL: {'cpu': len(self.settings['map'])}}", **settings
    )
    assert pid_of(ask(child)) == 2000


def test_one_for_which_nobody_waits_ends_itself(tmp_path: Path) -> None:
    """As after the end of a worker of which a fork has its pipes still."""
    venv = plugin_venv.make(tmp_path, "def used(self, account):\n    time.sleep(3600)", before="import time")
    argv = [str(venv / "bin/python"), "-I", children.host.__file__, "60"]
    plugin = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert plugin.stdin
    opening = {"name": plugin_venv.NAME, "settings": {}, "components": {}, "zone": "UTC"}
    questions = [
        {"call": "open", "timeout_s": 60, **opening},
        {"call": "usage", "timeout_s": 0.2, "account": "a"},
    ]
    for question in questions:
        plugin.stdin.write(json.dumps(question).encode() + b"\n")
    plugin.stdin.flush()
    assert plugin.wait(timeout=600) == -signal.SIGKILL
    plugin.communicate()
