# SPDX-License-Identifier: MIT
"""A server of a test run is one for all its processes, and ends with it; what they copy is made once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.core.errors import SiteAgentError
from rig import run_servers
from rig.child_process import is_alive
from rig.processes import REPOSITORY, wait_until

SERVER = """
import os, sys, time
open(f"{sys.argv[1]}.new", "w").write(str(os.getpid()))
os.rename(f"{sys.argv[1]}.new", sys.argv[1])
time.sleep(987)
"""
RUN = f"""
import os, sys, time
from rig import run_servers
run_servers.begin()
def server(place):
    return [sys.executable, "-c", {SERVER!r}, str(place)]
for number in range(4):
    if os.fork() == 0:
        folder = run_servers.shared("one", server, lambda folder: (folder / "prepared").open("a").write("."))
        said = (folder / "prepared").read_text() + (folder / "socket").read_text()
        open(f"{{sys.argv[1]}}/{{number}}", "w").write(said)
        os._exit(0)
for _ in range(4):
    os.wait()
open(f"{{sys.argv[1]}}/all", "w").close()
time.sleep(987)
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_one_serves_all_processes_of_a_run_and_ends_with_it(tmp_path: Path, end: signal.Signals) -> None:
    env = {name: value for name, value in os.environ.items() if name != run_servers.FOLDER}
    begun = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path)], cwd=REPOSITORY, env=env)
    wait_until("all have asked", (tmp_path / "all").exists, begun)
    (said,) = {(tmp_path / str(number)).read_text() for number in range(4)}
    assert said[0] == "." and is_alive(int(said[1:]))
    begun.send_signal(end)
    begun.wait()
    wait_until("the end of the server", lambda: not is_alive(int(said[1:])))


def test_a_server_that_does_not_start_is_reported_with_its_log() -> None:
    with pytest.raises(SiteAgentError, match=r"test-broken has ended: no luck"):
        run_servers.shared("test-broken", lambda _: ["sh", "-c", "echo no luck >&2; exit 3"], lambda _: None)


def test_what_all_processes_copy_is_made_once_and_anew_where_it_was_not_finished(tmp_path: Path) -> None:
    def cut_off(folder: Path) -> None:
        (folder / "half").touch()
        raise SiteAgentError("no luck")

    with pytest.raises(SiteAgentError, match="no luck"):
        run_servers.made(f"made-{tmp_path.name}", cut_off)
    counts = []

    def make(folder: Path) -> None:
        counts.append(len(list(folder.iterdir())))
        (folder / "number").write_text(str(len(counts)))

    folders = {run_servers.made(f"made-{tmp_path.name}", make) for _ in range(2)}
    assert [(folder / "number").read_text() for folder in folders] == ["1"]
    assert counts == [0]
