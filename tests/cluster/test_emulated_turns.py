# SPDX-License-Identifier: MIT
"""The programs of the demo's cluster take turns: none undoes what another one wrote at the same time."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

from simulator.demo.parts import emulated_cluster

USERS, JOBS = 12, 6


def test_changes_and_jobs_at_once_are_all_there(tmp_path: Path) -> None:
    """As in the demo: members change while jobs are recorded and a report reads."""
    commands, state = emulated_cluster(tmp_path)
    environment = {**os.environ, **state}

    def start(program: str, *arguments: str, stdin: str = "") -> subprocess.Popen[str]:
        found = subprocess.Popen(
            [commands / program, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert found.stdin
        found.stdin.write(stdin)
        found.stdin.close()
        found.stdin = None
        return found

    start("sacctmgr", "-i", "add", "account", "name=a").wait()
    at_work = []
    for number in range(USERS):
        at_work.append(start("sacctmgr", "-i", "add", "user", f"name=u{number}", "account=a"))
        if number < JOBS:
            at_work.append(start("slurm-emulator", stdin=f"usage_inject u{number} 2 a\nquit\n"))
    failed = [process.communicate()[1] for process in at_work if process.wait()]
    # Who was made by a job meanwhile is there already.
    assert all("Error" not in each for each in failed), failed
    shown = start("sacctmgr", "-n", "-P", "show", "assoc", "account=a", "format=user").communicate()[0]
    assert set(shown.split()) >= {f"u{number}" for number in range(USERS)}
    jobs = start("sacct", "-a", "-X", "-n", "-P", "-S", "2020-01-01", "-o", "JobID").communicate()[0].split()
    assert len(set(jobs)) == len(jobs) == JOBS


def test_programs_that_read_do_not_wait_for_each_other(tmp_path: Path) -> None:
    commands, state = emulated_cluster(tmp_path)
    environment = {**os.environ, **state}
    with (commands / ".turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_SH)
        for words in (["sacctmgr", "-n", "-P", "show", "assoc"], ["sacct", "-a", "-n", "-P"]):
            subprocess.run([commands / words[0], *words[1:]], env=environment, check=True, timeout=300)
        change = [commands / "sacctmgr", "-i", "add", "account", "name=a"]
        with subprocess.Popen(change, env=environment, stdout=subprocess.DEVNULL) as writer:
            subprocess.run(
                [commands / "sacctmgr", "-n", "show", "assoc"], env=environment, check=True, timeout=300
            )
            assert writer.poll() is None, "it waits for its turn"
            fcntl.flock(turn, fcntl.LOCK_UN)
            assert writer.wait(300) == 0
