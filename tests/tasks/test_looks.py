# SPDX-License-Identifier: MIT
"""What pages of the console may not read themselves: the console, Redis and a worker, all real."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import requests

from agent.cli.web import passwords
from agent.cli.web.passwords import new_login
from agent.cli.web.roles import Role
from agent.state import journal, overview
from agent.state.hints import SEEN_ALLOCATIONS, SEEN_PEOPLE
from rig.celery_process import REPOSITORY, environment
from rig.processes import free_ports, wait_until
from rig.redis_server import RedisServer
from rig.site import configuration, settings_of
from rig.slurm_cluster import SlurmCluster
from rig.warm_python import of_commands
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.cli.web.running import PASSWORD, Running
from tests.tasks.conftest import Start
from tests.tasks.emulated import settings, variables
from tests.tasks.scripts import PATIENT


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=2)) as server:
        yield server


@pytest.fixture
def config(slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path) -> Path:
    return configuration(
        waldur,
        tmp_path,
        backend=settings(slurm),
        membership_sync_backend="slurm",
        reporting_backend="slurm",
    )


@pytest.fixture
def console(config: Path, slurm: SlurmCluster, redis_server: RedisServer) -> Iterator[Running]:
    """The command `console`, as a process of its own."""
    site = settings_of(config)
    path = site.state_dir / passwords.NAME
    site.state_dir.mkdir(mode=0o700, exist_ok=True)
    passwords.write(path, {"ann": new_login("ann", Role.OPERATOR, PASSWORD)})
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [of_commands().program, "-c", PATIENT, "console", "--listen", f"127.0.0.1:{port}", "-c", str(config)],
        env=environment(config, redis_server.url, variables(slurm)),
        cwd=REPOSITORY,
    )
    nothing: Any = None
    running = Running(f"http://127.0.0.1:{port}", site, found=nothing, inside=nothing)

    def answers() -> bool:
        assert process.poll() is None
        try:
            return requests.get(f"{running.url}/login", timeout=600).ok
        except requests.ConnectionError:
            return False

    wait_until("the console answers", answers)
    yield running
    process.terminate()
    process.wait(600)


def test_a_worker_finds_out_what_a_page_asks_for(
    console: Running, waldur: SimulatedWaldur, start: Start
) -> None:
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
    site, operator = console.settings, console.log_in("ann")
    (offering,) = site.offerings
    assert "No offering" not in operator.get(f"{console.url}/usage").text
    start("worker")
    console.send(operator, f"/offering/{offering.uuid}", act="pause", hours="1", reason="not yet")
    sent = console.send(operator, f"/offering/{offering.uuid}", act="order_process", reason="it is urgent")
    assert sent.status_code == HTTPStatus.OK, sent.text
    wait_until("the order waits", lambda: order in operator.get(f"{console.url}/orders").text)
    again = console.send(operator, "/orders", offering=offering.uuid, order=order, reason="now")
    assert again.status_code == HTTPStatus.OK, again.text
    console.send(operator, f"/offering/{offering.uuid}", act="resume", reason="go on")
    console.send(operator, f"/offering/{offering.uuid}", act="order_process", reason="at once")
    wait_until("the order is done", lambda: waldur.order(order).state.value == "done")
    console.send(operator, f"/offering/{offering.uuid}", act="membership_sync", reason="and its people")
    where = (site.state_dir, offering.uuid)
    wait_until("a pass has seen it", lambda: _members(site.state_dir, offering.uuid) == 2)
    causes = {str(line["cause"]) for line in journal.read(site.state_dir)}
    assert "operator ann (console)" in causes
    texts = [str(line["action"]["text"]) for line in journal.read(site.state_dir)]
    assert f"asked for another try of Create order {order} (now)" in texts
    (one,) = overview.find(site.state_dir, SEEN_ALLOCATIONS, [offering.uuid]).rows
    person = overview.people(*where, one.value.members)[one.value.members[0]]
    assert person.key == overview.find(site.state_dir, SEEN_PEOPLE, [offering.uuid], person.key).rows[0].key
    for path, found in (
        (f"/look/person/{offering.uuid}/{one.key}/{person.key}", "can submit jobs with"),
        (f"/look/account/{offering.uuid}/{one.key}", "a_one: ok"),
        (f"/look/plan/{offering.uuid}/membership_sync", "would carry out 0 actions now"),
        (f"/usage/{offering.uuid}", "As of"),
    ):
        address = f"{console.url}{path}"
        assert "Nothing was looked at yet" in operator.get(address).text
        asked = console.send(operator, path)
        assert asked.status_code == HTTPStatus.OK, asked.text
        wait_until(
            f"{path} is found out", lambda found=found, address=address: found in operator.get(address).text
        )
        assert "A worker is asked" not in operator.get(address).text


def _members(state_dir: Path, offering_uuid: str) -> int:
    found = overview.find(state_dir, SEEN_ALLOCATIONS, [offering_uuid]).rows
    return sum(len(each.value.members) for each in found)
