# SPDX-License-Identifier: MIT
"""The programs of the demo's cluster take turns: none undoes what another one wrote at the same time."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from pathlib import Path

from rig import processes
from rig.child_process import is_alive
from rig.emulator import emulated_cluster
from rig.processes import wait_until
from simulator.demo import emulator

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
    # Who was made by a job since then is there already.
    assert all("Error" not in each for each in failed), failed
    listed = start("sacctmgr", "-n", "-P", "show", "assoc", "account=a", "format=user").communicate()[0]
    assert set(listed.split()) >= {f"u{number}" for number in range(USERS)}
    jobs = start("sacct", "-a", "-X", "-n", "-P", "-S", "2020-01-01", "-o", "JobID").communicate()[0].split()
    assert len(set(jobs)) == len(jobs) == JOBS


def test_a_program_has_the_zone_of_its_environment(tmp_path: Path) -> None:
    """Months begin at midnight of the zone in which sacct runs."""
    program, place = tmp_path / "sacct", tmp_path / "socket"
    program.write_text("import time\nprint(time.localtime(0).tm_hour)\n")
    emulator.write_clients(tmp_path / "bin", place, [program])
    server = processes.start(emulator.server(place), log=tmp_path / "log", env=os.environ)
    try:
        wait_until("the emulator", place.exists, server, tmp_path / "log")
        for zone, hour in (("UTC", 0), ("Asia/Tokyo", 9)):
            env = {**os.environ, **emulator.environment(tmp_path), "TZ": zone}
            printed = subprocess.run(
                [tmp_path / "bin" / "sacct"], env=env, stdout=subprocess.PIPE, check=True
            )
            assert int(printed.stdout) == hour
    finally:
        processes.stop(server)


def test_reads_of_sacctmgr_need_not_be_alone(tmp_path: Path) -> None:
    commands, state = emulated_cluster(tmp_path)
    with (tmp_path / "slurm.json.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_SH)
        for words in (["list", "tres"], ["-n", "-P", "show", "assoc"]):
            subprocess.run(
                [commands / "sacctmgr", *words],
                env={**os.environ, **state},
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=600,
            )


def test_a_change_named_like_a_read_is_alone(tmp_path: Path) -> None:
    commands, state = emulated_cluster(tmp_path)
    with (tmp_path / "slurm.json.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_SH)
        change = subprocess.Popen(
            [commands / "sacctmgr", "-i", "add", "account", "show"],
            env={**os.environ, **state},
            stdout=subprocess.DEVNULL,
        )
        inode = os.fstat(turn.fileno()).st_ino
        wait_until(
            "it waits for its turn", lambda: re.search(rf"-> FLOCK  ADVISORY  WRITE .*:{inode} ", locks())
        )
        assert not (tmp_path / "slurm.json").exists()
    assert change.wait() == 0
    assert "show" in (tmp_path / "slurm.json").read_text()


def test_a_change_that_is_killed_has_changed_nothing(tmp_path: Path) -> None:
    """By a time-out, for example: its fork ends with it, the state stays whole, and the next one has its turn."""
    program, place, state = tmp_path / "writes", tmp_path / "socket", tmp_path / "slurm.json"
    program.write_text(
        f"import os, sys, time\nopen(os.environ[{emulator.STATE!r}], 'a').write(' and half')\n"
        "print(os.getpid(), flush=True)\ntime.sleep(float(sys.argv[1]))\n"
    )
    emulator.write_clients(tmp_path / "bin", place, [program])
    server = processes.start(emulator.server(place), log=tmp_path / "log", env=os.environ)
    try:
        wait_until("the emulator", place.exists, server, tmp_path / "log")
        state.write_text("whole")
        command, env = str(tmp_path / "bin" / program.name), {**os.environ, emulator.STATE: str(state)}
        change = subprocess.Popen([command, "987"], env=env, stdout=subprocess.PIPE)
        assert change.stdout
        fork = int(change.stdout.readline())
        change.kill()
        change.communicate()
        wait_until("the end of its fork", lambda: not is_alive(fork))
        assert state.read_text() == "whole"
        subprocess.run([command, "0"], env=env, check=True, stdout=subprocess.DEVNULL)
        assert state.read_text() == "whole and half"
    finally:
        processes.stop(server)


def locks() -> str:
    return Path("/proc/locks").read_text()


def test_each_program_is_a_fork_of_one_process(tmp_path: Path) -> None:
    """With the arguments, folder, environment, streams and exit code of a program of its own."""
    program, place, log = tmp_path / "shows-all", tmp_path / "socket", tmp_path / "log"
    program.write_text(
        "#!/usr/bin/env python3\nimport os, sys\nprint(os.getppid(), os.getcwd(), os.environ['A'], *sys.argv[1:])\n"
        "print(sys.stdin.read(), file=sys.stderr)\nsys.exit(7)\n"
    )
    emulator.write_clients(tmp_path / "bin", place, [program])
    server = processes.start(emulator.server(place), log=log, env=os.environ)
    processes.wait_until("the emulator", place.exists, server, log)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    said = subprocess.run(
        [tmp_path / "bin" / program.name, "a b"],
        cwd=folder,
        env={emulator.STATE: str(tmp_path / "state"), "A": "of its own"},
        input="asked",
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    processes.stop(server)
    assert (said.returncode, said.stdout) == (7, f"{server.pid} {folder} of its own a b\n")
    assert said.stderr == "asked\n"
