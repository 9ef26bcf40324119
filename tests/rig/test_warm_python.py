# SPDX-License-Identifier: MIT
"""A fork of the warm Python is to its caller what a process of its own would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rig import quick_client
from rig.child_process import is_alive
from rig.processes import wait_until
from rig.warm_python import of_workers, python
from simulator import fork_server

SAID = """
import os, sys
print(sys.argv, os.getcwd(), os.environ["WORD"], "tasks.orders" in sys.modules, __name__, sys.stdin.read())
print("problem", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("write_client", [quick_client.write_client, fork_server.write_client])
@pytest.mark.parametrize("how", ["script", "file", "module"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_command_has_its_arguments_folder_environment_streams_and_code(
    tmp_path: Path, write_client: Callable[[Path, Path], None], how: str, code: int
) -> None:
    (tmp_path / "said.py").write_text(SAID)
    client = tmp_path / "client"
    write_client(client, of_workers().program.with_name("socket"))
    words = {"script": ["-c", SAID], "file": ["said.py"], "module": ["-m", "said"]}[how]
    done = subprocess.run(
        [client, *words, str(code), "ü"],
        env={"WORD": "a=b"},
        cwd=tmp_path,
        input="in",
        capture_output=True,
        text=True,
        check=False,
    )
    called = {"script": "-c", "file": "said.py", "module": str(tmp_path / "said.py")}[how]
    assert done.stdout == f"{[called, str(code), 'ü']} {tmp_path} a=b True __main__ in\n", done.stderr
    assert (done.stderr, done.returncode) == ("problem\n", code)


def test_the_words_of_a_client_are_its_own(tmp_path: Path) -> None:
    words = ["it's", '"$HOME" @ARGV', "\\", "\\'", "{}", ""]
    of_workers().write_client(tmp_path / "client", "-c", "import sys; print(sys.argv[1:])", *words)
    assert subprocess.check_output([tmp_path / "client", "last"], text=True) == f"{[*words, 'last']}\n"


def test_an_error_and_a_sentence_end_it_as_python_does() -> None:
    for script in ("import sys; sys.exit('a sentence')", "1 / 0", "import threading, time; "
                   "threading.Thread(target=lambda: (time.sleep(0.2), print('last'))).start()"):  # fmt: skip
        real, fork = (
            subprocess.run([each, "-c", script], capture_output=True, text=True, check=False)
            for each in (sys.executable, python())
        )
        assert (fork.stdout, fork.returncode) == (real.stdout, real.returncode)
        assert fork.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_it_sees_the_file_systems_that_its_client_sees(tmp_path: Path) -> None:
    shown, hidden = tmp_path / "shown", tmp_path / "hidden"
    shown.write_text("shown")
    hidden.write_text("hidden")
    mounted = ["unshare", "--mount", "sh", "-c", f'mount --bind {shown} {hidden} && exec "$@"', "sh"]
    read = ["-c", f"print(open({str(hidden)!r}).read())"]
    for prefix, text in ((mounted, "shown\n"), ([], "hidden\n")):
        said = subprocess.run([*prefix, python(), *read], capture_output=True, text=True, check=True)
        assert said.stdout == text


def test_a_process_is_killed_and_ended_by_its_pid(tmp_path: Path) -> None:
    script = "import os, sys, time; print(os.getpid(), os.getsid(0), flush=True); time.sleep(987)"
    for end, code in ((signal.SIGKILL, -9), (signal.SIGTERM, -15)):
        log = tmp_path / f"{code}.log"
        process = of_workers().popen(["-c", script], log=log, env=os.environ)
        wait_until("its pid", lambda: log.read_text().endswith("\n"))  # noqa: B023
        assert log.read_text().split() == [str(process.pid)] * 2
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        process.send_signal(end)
        assert process.wait() == process.poll() == code
        assert not is_alive(process.pid)


def test_the_fork_of_a_client_that_is_killed_is_killed(tmp_path: Path) -> None:
    """As the process of its own would be, and no other one."""
    script = "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()}.'); time.sleep(987)"
    logs = [tmp_path / "killed", tmp_path / "other"]
    killed, other = (subprocess.Popen([python(), "-c", script, str(log)]) for log in logs)
    try:
        wait_until("their pids", lambda: all(log.exists() and log.read_text()[-1:] == "." for log in logs))
        of_killed, of_other = (int(log.read_text()[:-1]) for log in logs)
        killed.kill()
        killed.wait()
        wait_until("the end of its fork", lambda: not is_alive(of_killed))
        assert is_alive(of_other) and other.poll() is None
        os.kill(of_other, signal.SIGTERM)
        assert other.wait() == -signal.SIGTERM
    finally:
        for each in (killed, other):
            each.kill()
            each.wait()


def test_a_signal_comes_too_late_without_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller hears of an end a moment after it."""
    ended = of_workers().popen(["-c", ""], log=tmp_path / "log", env={})
    assert ended.wait() == 0
    monkeypatch.setattr(ended, "poll", lambda: None)
    ended.send_signal(0)
