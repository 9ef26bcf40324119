# SPDX-License-Identifier: MIT
"""The units' commands, run as they stand: ready, alive, ended as systemd ends them, and why they do not start."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from celery import Celery

from agent.cli.web import passwords
from agent.cli.web.passwords import new_login
from agent.cli.web.roles import Role
from agent.host import service_manager
from agent.state import journal
from agent.state.store import NAME, Store
from rig.child_process import is_alive
from rig.processes import free_ports, start, stop, wait_until
from rig.reaper import descendants
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.slurm_cluster import WAITING_WRITES, SlurmCluster
from rig.unit_process import SERVICE_UID, UnitProcess
from simulator.server.waldur import SimulatedWaldur
from tests.scale import FULL
from tests.tasks.emulated import EmulatedSlurm, settings, variables

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")

Run = Callable[..., UnitProcess]


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur() as server:
        yield server


def site_file(waldur: SimulatedWaldur, folder: Path, **offering: Any) -> Path:
    """A configuration that leaves `state_dir` to the unit."""
    path = configuration(waldur, folder, **offering)
    document = yaml.safe_load(path.read_text())
    del document["state_dir"]
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Start a unit by its name; all are ended, and their logs printed where the test fails."""
    running: list[UnitProcess] = []

    def make(name: str, config: Path | None, given: dict[str, str], config_uid: int = 0) -> UnitProcess:
        folder = tmp_path / f"unit-{len(running)}"
        unit = UnitProcess(name, folder, config, given, config_uid=config_uid)
        running.append(unit)
        return unit.start()

    yield make
    for unit in running:
        unit.close()


@pytest.fixture
def absent_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """One that the test itself starts."""
    server = RedisServer(tmp_path / "redis")
    yield server
    server.stop()


@pytest.mark.real_part
def test_every_unit_waits_for_redis_says_so_gets_ready_stays_alive_and_stops(
    absent_redis: RedisServer, run: Run, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    """All at once, as on a head node after a power cut. The plain worker is the same command as the legacy one; that
    one, and the plain beat, are other units with the commands of these two, and run in full runs.
    """
    slurm = EmulatedSlurm(tmp_path)
    config = site_file(waldur, tmp_path, backend=settings(slurm), queue="q1", stomp_enabled=True)
    (port,) = free_ports(1)
    given = {
        **variables(slurm),
        "WALDUR_SITE_AGENT_BROKER_URL": absent_redis.url,
        "FLOWER_BASIC_AUTH": "a:b",
        "FLOWER_PORT": str(port),
    }
    # Legacy units get no credential: their user has to be one who may read the file.
    owners = {
        "waldur-site-worker@q1": 0,
        "legacy/waldur-site-beat": SERVICE_UID,
        "waldur-site-bridge": 0,
    }
    if FULL:
        owners |= {"legacy/waldur-site-worker": 0, "waldur-site-beat": 0}
    units = {name: run(f"{name}.service", config, given, uid) for name, uid in owners.items()}
    flower = run("waldur-site-flower.service", config, given)
    why = f"STATUS=the broker redis://:**@127.0.0.1:{absent_redis.port}/0 cannot be reached: Error 111"
    for name, unit in units.items():
        if "bridge" not in name:
            wait_until("why", lambda: any(line.startswith(why) for line in unit.messages))  # noqa: B023
            assert "READY=1" not in unit.messages
    absent_redis.start()
    for unit in units.values():
        unit.wait_for("READY=1")
        unit.wait_for("WATCHDOG=1", times=unit.messages.count("WATCHDOG=1") + 2)
    assert "STATUS=takes tasks from site.q1" in units["waldur-site-worker@q1"].messages
    assert "q1@" in units["waldur-site-worker@q1"].output()
    wait_until("flower", lambda: "Visit me at" in flower.output())
    for unit in [*units.values(), flower]:
        unit.terminate()
    for name, unit in {**units, "flower": flower}.items():
        assert unit.wait_for_end() == 0, name
    for name, unit in units.items():
        if "beat" not in name:
            wait_until(name, lambda: "STOPPING=1" in unit.messages)  # noqa: B023


def test_a_write_to_slurm_outlives_a_worker_that_is_stopped_and_then_killed(
    run: Run, slurm: SlurmCluster, redis_server: RedisServer, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    """As systemd does when TimeoutStopSec is over. The write is held up by a row lock in slurmdbd's database."""
    redis_server.flush()
    # On the unit's PATH the emulator of the tests' own environment comes first.
    backend = {"slurm_bin_path": str(slurm.bin_path), "enable_user_homedir_account_creation": False}
    config = site_file(waldur, tmp_path, backend=backend, queue="q1")
    given = {
        "SLURM_CONF": slurm.env["SLURM_CONF"],
        "WALDUR_SITE_AGENT_BROKER_URL": redis_server.url,
    }
    project = waldur.seed.project_uuids[0]
    created = waldur.place_create_order(project, "one", limits={"cpu": 10, "mem": 2}, slug="one")
    worker = run("waldur-site-worker.service", config, given)
    worker.wait_for("READY=1")
    client = Celery(broker=redis_server.url)
    client.conf.broker_transport_options = {"sep": ":", "priority_steps": [0, 3, 6, 8, 9]}
    poll = ("order_process.poll", (waldur.seed.offering_uuid,))
    client.send_task(*poll, queue="site.q1")
    wait_until("the account", lambda: waldur.order(created).state.value == "done")
    updated = waldur.orders.place_update(waldur.order(created).resource_uuid, {"cpu": 20, "mem": 2})
    # Else a write that waits for 50 s fails.
    slurm.sql("SET GLOBAL innodb_lock_wait_timeout=600")
    socket_path = str(slurm.folder / "mariadb.socket")
    lock_rows = "START TRANSACTION; SELECT id_assoc FROM test_assoc_table FOR UPDATE; SELECT SLEEP(600)"
    holder = start(
        ["mariadb", "--no-defaults", "--unbuffered", "-uroot", "-S", socket_path, "slurm_acct_db", "-e", lock_rows],
        log=tmp_path / "holder.log", env=os.environ,
    )  # fmt: skip
    try:
        wait_until("the lock", lambda: "SLEEP" in slurm.sql("SHOW PROCESSLIST"), pause_s=0.1)
        client.send_task(*poll, queue="site.q1")
        # InnoDB looks again only after 0.1 s without a question.
        wait_until("a write that waits", lambda: bool(slurm.sql(WAITING_WRITES)), pause_s=0.2)
        started = {worker.process.pid, *descendants(worker.process.pid)}
        (write,) = (pid for pid in started if "sacctmgr --immediate" in command_of(pid))
        worker.terminate()
        wait_until("the worker stops", lambda: "STOPPING=1" in worker.messages)
        worker.kill()
        wait_until("the pool is gone", lambda: not any(map(is_alive, started - {write})))
        assert is_alive(write)
    finally:
        slurm.sql("SET GLOBAL innodb_lock_wait_timeout=DEFAULT")
        stop(holder)
    wait_until("the write has ended", lambda: not is_alive(write))
    assert slurm.servers.is_running("slurmdbd")
    assert "cpu=1200" in slurm.ask("sacctmgr", "-nP", "show", "assoc", "account=a_one", "format=grptresmins")
    again = run("waldur-site-worker.service", config, given)
    wait_until("the order", lambda: waldur.order(updated).state.value == "done")
    assert "1 tasks put back" in again.output()


def command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join([Path(words[0].decode()).name, *(word.decode() for word in words[1:])])


def test_a_unit_without_its_file_or_with_another_owner_says_why_and_ends_with_2(
    run: Run, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    config = site_file(waldur, tmp_path)
    none = run("waldur-site-worker.service", None, {})
    # The legacy units get no credential: what is root's only is not for their user.
    foreign = run("legacy/waldur-site-beat.service", config, {})
    assert none.wait_for_end() == foreign.wait_for_end() == 2
    assert "the configuration file /etc/waldur/waldur-site-agent-config.yaml does not exist" in none.output()
    assert "cannot read /etc/waldur/waldur-site-agent-config.yaml: Permission denied" in foreign.output()
    assert none.messages == foreign.messages == []


@pytest.fixture
def state() -> Iterator[Path]:
    """A folder of the service's user, where that one may go."""
    folder = Path(tempfile.mkdtemp(prefix="state-"))
    os.chown(folder, SERVICE_UID, SERVICE_UID)
    yield folder
    shutil.rmtree(folder)


def test_the_console_runs_as_its_own_user_which_owns_the_state(
    run: Run, waldur: SimulatedWaldur, tmp_path: Path, state: Path
) -> None:
    """Its password file is handed over as a file of `state_dir`, which systemd gives to that user at the start."""
    (port,) = free_ports(1)
    config = site_file(waldur, tmp_path)
    config.write_text(f"{config.read_text()}console: {{listen: '{port}'}}\n")
    given = {"WALDUR_SITE_AGENT_BROKER_URL": "redis://127.0.0.1:1/0"}
    nobody = run("waldur-site-console.service", config, given)
    assert nobody.wait_for_end() == 1
    assert "nobody can log in: `console passwd NAME --role operator`" in nobody.output()
    passwords.write(state / passwords.NAME, {"ann": new_login("ann", Role.VIEWER, "a long password")})
    # As a drop-in for another folder would.
    console = run("waldur-site-console.service", config, {**given, "WALDUR_SITE_AGENT_STATE_DIR": str(state)})
    wait_until("the console", lambda: f"the console is at http://127.0.0.1:{port}" in console.output())
    assert Path(f"/proc/{console.process.pid}").stat().st_uid == SERVICE_UID
    session = requests.Session()
    page = session.get(f"http://127.0.0.1:{port}/", timeout=600).text
    (token,) = re.findall('name="_xsrf" value="([^"]*)"', page)
    form = {"name": "ann", "password": "a long password", "_xsrf": token}
    answer = session.post(f"http://127.0.0.1:{port}/login", form, timeout=600)
    assert answer.status_code == 200 and ">ann</" in answer.text
    # A file that root makes there is its owner's, too.
    journal.note(state, None, "a line of root", by="root")
    assert {path.stat().st_uid for path in state.rglob("*")} == {SERVICE_UID}
    with Store(state).write():
        pass
    assert session.get(f"http://127.0.0.1:{port}/", timeout=600).status_code == 200
    os.chown(state / NAME, 0, 0)
    refused = session.get(f"http://127.0.0.1:{port}/", timeout=600)
    assert refused.status_code == 503 and f"the state file {state / NAME} cannot be read" in refused.text
    console.terminate()
    assert console.wait_for_end() == 0


def test_a_socket_in_the_file_system_is_notified_and_one_that_is_gone_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place))
        monkeypatch.setenv("NOTIFY_SOCKET", str(place))
        assert service_manager.notify(service_manager.READY, status="two\nlines")
        assert manager.recv(1000) == b"READY=1\nSTATUS=two lines"
    place.unlink()
    assert not service_manager.notify(service_manager.READY)
    monkeypatch.delenv("NOTIFY_SOCKET")
    assert not service_manager.notify(service_manager.READY)
