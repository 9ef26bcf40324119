# SPDX-License-Identifier: MIT
"""`cluster`: all services of a one-machine site below one process, and the supervisor that keeps programs running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.cli import cluster
from agent.cli.cluster import WORKER_STOP_S
from agent.cli.settings import load_settings
from agent.cli.web import passwords
from agent.cli.web.passwords import new_login
from agent.cli.web.roles import Role
from agent.config.model import Settings
from agent.host import broker_program, supervisor
from agent.host.children import StopRequest
from agent.host.supervisor import Part, Supervisor
from agent.host.waiting import NeverCame
from rig.operator_process import OperatorProcess
from rig.processes import REPOSITORY, free_ports, wait_until
from tasks.limits import TASK_TIME_LIMIT_S
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import OperatorSite, run_program


def test_a_site_on_one_machine(site: OperatorSite) -> None:
    """Broker, worker, beat and console; a second one next to it would take the broker's files. At the end no process is
    left.
    """
    (port,) = free_ports(1)
    file = site.configure(backend={"enable_user_homedir_account_creation": False})
    Path(file).write_text(f"{Path(file).read_text()}console: {{listen: '{port}'}}\n")
    passwords.write(
        site.folder / "state" / passwords.NAME, {"ann": new_login("ann", Role.VIEWER, "a long password")}
    )
    order = site.place("One")
    env = {**os.environ, **site.environment, "CELERY_BROKER_URL": "redis://127.0.0.1:1/0"}
    words = [sys.executable, str(REPOSITORY / "manage.py"), "cluster", "-c", file, "--broker", "embedded"]
    cluster = OperatorProcess(
        words, site.folder / "log", env, ready="broker, worker, beat, console run", stop_s=40
    )
    try:
        cluster.start()
        second = run_program("cluster", "-c", file, "--broker", "embedded")
        assert second.code == 2
        assert "another `cluster` runs with the state_dir" in second.err
        wait_until("order done", lambda: site.waldur.order(order).state.value == "done")

        seen: list[dict[str, Any]] = []

        def is_seen() -> bool:
            """A worker has 1.5 s to answer."""
            seen.append(run_program("status", "--json", "-c", file).document()["broker"])
            return [len(seen[-1][name]) for name in ("problem", "workers", "beats")] == [0, 1, 1]

        wait_until("`status` sees worker and beat", is_seen, log=lambda: str(seen[-1]))
        assert seen[-1]["url"].endswith("/broker/broker.sock"), (
            "the one that runs, not the one of the settings"
        )
        children = children_of(cluster.process.pid)
        assert len(children) == 4
        assert "tornado" not in "".join(Path(f"/proc/{child}/maps").read_text() for child in children[1:3]), (
            "worker and beat carry no Flower"
        )
        wait_until("the console", lambda: f"the console is at http://127.0.0.1:{port}" in cluster.output())
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.process.wait() == 0
        assert [child for child in children if Path(f"/proc/{child}").exists()] == []
    finally:
        cluster.stop()
        print(cluster.output())
    names = {line.partition(" | ")[0].strip() for line in cluster.output().splitlines()}
    assert {"worker", "cluster", "console"} <= names <= {"broker", "worker", "beat", "console", "cluster"}, (
        "each line begins with the name of its part"
    )
    assert "order_process of offering Test SLURM: 1 done" in cluster.output()
    assert "Warning: " not in cluster.output()


def test_a_password_file_that_is_wrong_stops_no_worker(site: OperatorSite, tmp_path: Path) -> None:
    settings = load_settings(Path(site.configure()))
    assert "console" not in names_of(settings, tmp_path)
    path = settings.state_dir / passwords.NAME
    passwords.write(path, {"ann": new_login("ann", Role.VIEWER, "a long password")})
    path.chmod(0o644)
    # It says why it ends, and is started again.
    assert names_of(settings, tmp_path) >= {"worker", "beat", "console"}


def names_of(settings: Settings, folder: Path) -> set[str]:
    return {each.name for each in cluster._parts(settings, folder, is_embedded=False)}


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_broker_without_a_place_for_its_socket(
    command: Command, site: OperatorSite, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 100)
    file = Path(site.configure())
    file.write_text(file.read_text().replace(str(site.folder / "state"), str(long)))
    said = command("cluster", "-c", str(file), "--broker", "embedded")
    assert said.code == 2
    assert "is too long for the name of a socket: choose a shorter state_dir" in said.err


def test_a_worker_may_finish_its_longest_task() -> None:
    assert WORKER_STOP_S > TASK_TIME_LIMIT_S


class Supervised:
    """Shell scripts under a supervisor in this process, which is stopped when `until` holds."""

    def __init__(self, *parts: Part) -> None:
        self.lines: list[str] = []
        self._supervisor = Supervisor(parts, lambda name, line: self.lines.append(f"{name}: {line}"))

    def run(self, until: Callable[[list[str]], bool]) -> list[str]:
        stop_request, ended = StopRequest(), threading.Event()

        def watch() -> None:
            while not until(self.lines) and not ended.wait(0.01):
                pass
            stop_request.make()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self._supervisor.run(stop_request)
        finally:
            ended.set()
            watcher.join()
        return self.lines


def shell(name: str, script: str, **more: object) -> Part:
    return Part(name, ["/bin/sh", "-c", script], os.environ, **{"stop_timeout_s": 600.0, **more})  # type: ignore[arg-type]


def waiting(name: str, ends: Path) -> Part:
    return shell(name, f"trap 'echo {name} >>{ends}; exit 0' TERM; echo up; while :; do sleep 0.05; done")


def test_what_ends_is_started_again_and_the_last_stops_first(tmp_path: Path) -> None:
    ends = tmp_path / "ends"
    parts = Supervised(waiting("first", ends), shell("broken", "echo tried; exit 3"), waiting("last", ends))
    lines = parts.run(
        lambda lines: lines.count("broken: tried") >= 2 and {"first: up", "last: up"} <= {*lines}
    )
    assert "cluster: broken ended with 3; started again in 1 s" in lines
    assert "cluster: first, broken, last run" in lines
    assert ends.read_text().splitlines() == ["last", "first"]


def test_what_does_not_stop_is_killed_alone(tmp_path: Path) -> None:
    """Its own child goes on, as a write to the cluster does, and ends by itself."""
    written = tmp_path / "written"
    stubborn = shell(
        "worker",
        f"trap '' TERM; (while kill -0 $$; do sleep 0.02; done; echo done > {written}) & "
        "echo up; while :; do sleep 0.05; done",
        stop_timeout_s=0.3,
    )
    lines = Supervised(stubborn).run(lambda lines: "worker: up" in lines)
    assert "cluster: worker has not ended in 0 s: killed" in lines
    wait_until("the write is finished", written.exists)


def test_a_part_that_the_others_need_and_that_does_not_start() -> None:
    needed = shell("broker", "echo no memory left; exit 7", ready=lambda: False)
    parts = Supervised(needed, shell("worker", "echo up"))
    with pytest.raises(NeverCame, match="broker ended with 7; its own lines are above"):
        parts.run(lambda lines: "never" in lines)
    wait_until("its own line", lambda: "broker: no memory left" in parts.lines)
    assert "worker: up" not in parts.lines


def test_waits_grow_while_a_part_ends_at_once() -> None:
    waits = [supervisor.RESTART.wait_s(lives, 0) for lives in range(8)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_the_broker_keeps_all_and_listens_on_no_port(tmp_path: Path) -> None:
    config, address, url = broker_program.on_socket(tmp_path)
    process = subprocess.Popen([broker_program.find(), str(config)], stdout=subprocess.DEVNULL)
    try:
        wait_until("the broker answers", lambda: broker_program.answers(address))
        found = subprocess.run(
            [sys.executable, "-c", ASK, str(address)], capture_output=True, text=True, check=True
        )
        assert found.stdout.split() == ["0", "yes", "noeviction"]
        assert (url, config.stat().st_mode & 0o777) == (f"redis+socket://{address}", 0o600)
        assert address.stat().st_mode & 0o077 == 0
    finally:
        process.terminate()
        process.wait()


ASK = """
import redis, sys
client = redis.Redis(unix_socket_path=sys.argv[1], decode_responses=True)
for name in ("port", "appendonly", "maxmemory-policy"):
    print(client.config_get(name)[name])
"""
