# SPDX-License-Identifier: MIT
"""The programs of the demo's cluster take turns: none undoes what another one wrote at the same time."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

from rig.processes import wait_until
from simulator.demo import turns
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


def test_reads_of_sacctmgr_need_not_be_alone(tmp_path: Path) -> None:
    commands, state = emulated_cluster(tmp_path)
    with (commands / ".turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_SH)
        for words in (["list", "tres"], ["-n", "-P", "show", "assoc"]):
            subprocess.run(
                [commands / "sacctmgr", *words],
                env={**os.environ, **state},
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=60,
            )


def test_a_change_named_like_a_read_is_alone(tmp_path: Path) -> None:
    commands, state = emulated_cluster(tmp_path)
    with (commands / ".turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_SH)
        change = subprocess.Popen(
            [commands / "sacctmgr", "-i", "add", "account", "show"],
            env={**os.environ, **state},
            stdout=subprocess.DEVNULL,
        )
        wait_until("it waits for its turn", lambda: f"-> FLOCK  ADVISORY  WRITE {change.pid} " in locks())
        assert not (tmp_path / "slurm.json").exists()
    assert change.wait(60) == 0
    assert "show" in (tmp_path / "slurm.json").read_text()


def locks() -> str:
    return Path("/proc/locks").read_text()


def test_a_program_starts_python_once(tmp_path: Path) -> None:
    program = tmp_path / "shows-flags"
    program.write_text(
        "#!/usr/bin/env python3\nimport sys\nprint(sys.flags.isolated, sys.flags.no_site, *sys.argv[1:])\n"
    )
    turns.write(tmp_path / "bin", [program])
    said = subprocess.run(
        [tmp_path / "bin" / program.name, "a b"], capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout == "1 1 a b\n"
