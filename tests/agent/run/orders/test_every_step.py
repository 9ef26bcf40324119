# SPDX-License-Identifier: MIT
"""A fault at every single step of a pass: the next passes finish every order, once, and err none.

The cluster is in memory here, so that hundreds of passes take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.run.results import PassReport
from backends.testing.memory import MemoryBackend
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.scale import steps
from tests.step_faults import FAULTS, MortalClient, killed_at
from tests.world import AnyWorld, site_in_memory

pytestmark = pytest.mark.safety

REQUESTS_AT_MOST = 60
CALLS_OF_A_PASS = 14


class World(AnyWorld):
    """Orders of each kind, on their way; the backend and Waldur can be made to fail."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        self.waldur = waldur
        self.backend = MemoryBackend()
        self.site = site_in_memory(waldur, folder, self.backend, MortalClient)
        self.client = self.site.client
        project = waldur.seed.project_uuids[0]
        first = [waldur.place_create_order(project, f"old {n}", limits={"cpu": n + 1}) for n in range(2)]
        self.process_orders()
        changed, ended = (waldur.order(uuid).resource_uuid for uuid in first)
        self.created = [
            waldur.place_create_order(waldur.seed.project_uuids[n], f"new {n}", limits={"cpu": 7})
            for n in (0, 1)
        ]
        self.updated = waldur.orders.place_update(changed, {"cpu": 99})
        self.ended = waldur.orders.place_terminate(ended)
        self.bad = waldur.place_create_order(project, "bad", limits={"cpu": -1})
        waldur.requests.reset()

    def process_orders(self, times: int = 1) -> PassReport:
        for _ in range(times):
            report = super().process_orders()
        return report

    def wrong(self) -> list[str]:
        """Everything that is not as it must be in the end."""
        state = {
            uuid: self.waldur.order(uuid).state.value for uuid in [*self.created, self.updated, self.ended]
        }
        found = [f"{uuid} is {value}" for uuid, value in state.items() if value != "done"]
        if self.waldur.order(self.bad).state.value != "erred":
            found.append("the bad order is not erred")
        accounts = {name for name in self.backend.state.accounts if name.startswith("a_")}
        if accounts != {"a_old-0", "a_new-0", "a_new-1"}:
            found.append(f"accounts: {sorted(accounts)}")
        for name in ("a_new-0", "a_new-1"):
            if len(self.backend.state.users_of(name)) != 3 or dict(
                self.backend.state.accounts[name].limits
            ) != {"cpu": 420}:
                found.append(f"{name} is incomplete")
        if dict(self.backend.state.accounts["a_old-0"].limits) != {"cpu": 99 * 60}:
            found.append("the update is missing")
        for uuid in self.created:
            resource = self.waldur.resource(self.waldur.order(uuid).resource_uuid)
            if resource.backend_id not in accounts or resource.state.value != "OK":
                found.append(f"resource {resource.name}: {resource.backend_id!r} {resource.state.value}")
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("steps")


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=3)) as waldur:
        yield World(waldur, folder)


def test_without_faults_one_pass_does_it_all(world: World) -> None:
    report = world.process_orders()
    assert world.wrong() == [], report.as_json()
    assert world.process_orders().orders == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_of_any_one_request_is_made_good(folder: Path, fault: str) -> None:
    """In the short run every other request meets one of the faults."""
    for skip in steps(REQUESTS_AT_MOST, start=list(FAULTS).index(fault) * 10 // len(FAULTS)):
        with SimulatedWaldur(scenario=Scenario(members_per_project=3)) as waldur:
            world = World(waldur, folder)
            waldur.inject(Fault(skip=skip, times=1, **FAULTS[fault]))
            world.process_orders()
            struck = waldur.requests.count() > skip
            waldur.faults.clear()
            report = world.process_orders(2)
            assert world.wrong() == [], f"request {skip}: {[o.as_json() for o in report.orders]}"
        if not struck:
            break
    assert 25 < skip < REQUESTS_AT_MOST - 10


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "until the next pass"])
def test_an_outage_of_the_cluster_at_any_step_is_made_good(folder: Path, lasting: bool) -> None:
    for step in steps(CALLS_OF_A_PASS * 2, start=4 * lasting, stride=8):
        with SimulatedWaldur(scenario=Scenario(members_per_project=3)) as waldur:
            world = World(waldur, folder)
            calls = 0

            def outage(_: str, step: int = step) -> bool:
                nonlocal calls
                calls += 1
                return calls > step if lasting else calls == step + 1

            world.backend.outage = outage
            report = world.process_orders()
            assert not [o for o in report.orders if o.result == "failed" and o.order_uuid != world.bad]
            world.backend.outage = lambda _: False
            world.process_orders(2)
            assert world.wrong() == [], f"step {step}"


def test_a_pass_killed_at_any_step_is_finished_by_the_next(folder: Path) -> None:
    for step in steps(200, start=1):
        with SimulatedWaldur(scenario=Scenario(members_per_project=3)) as waldur:
            world = World(waldur, folder)
            killed = killed_at(step, world.client, world.backend, world.process_orders)
            world.process_orders(2)
            assert world.wrong() == [], f"step {step}"
        if not killed:
            break
    assert 60 < step < 199
