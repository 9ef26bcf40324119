# SPDX-License-Identifier: MIT
"""Membership passes at a server of October 2024: calls that it lacks, and metadata that it writes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.model import Snapshot
from agent.waldur import resources
from backends.base import Scope
from backends.testing.memory import MemoryBackend
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import World

LACKING = ("refresh_last_sync", "set_as_ok", "set_limits")


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur("2024", scenario=Scenario(members_per_project=2)) as server:
        yield server


@pytest.fixture
def world(waldur: SimulatedWaldur, tmp_path: Path) -> World:
    return World(waldur, tmp_path)


def asked(world: World) -> dict[str, int]:
    """How often each call was sent that this server lacks."""
    log = [entry.path for entry in world.waldur.requests.entries("POST *")]
    return {name: count for name in LACKING if (count := sum(f"/{name}/" in path for path in log))}


def test_what_the_server_lacks_is_never_reported_as_done_and_not_planned_again(world: World) -> None:
    uuids = world.allocate_all("one", "two")
    world.alter("a_one", limits={"cpu": 1200})
    world.change(uuids[1], state="Erred", error_message="by hand")
    journal = world.site.state_dir / "journal" / "journal.jsonl"
    first = world.sync()
    assert set(asked(world)) == set(LACKING)
    lines = journal.read_text()
    world.waldur.requests.reset()
    second = world.sync()
    assert asked(world) == {}
    assert [
        o.action.line() for o in (*first.outcomes, *second.outcomes) if o.action.verb != "add member"
    ] == []
    for verb in ("refresh last sync", "mark resource OK", "report limits"):
        assert verb not in lines
    assert journal.read_text() == lines
    assert world.planned() == []


def test_limits_that_cannot_be_reported_are_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.allocate("one")
    world.alter("a_one", limits={**world.cluster.accounts["a_one"].limits, "cpu": 1200})
    world.sync()
    world.sync()
    assert (
        caplog.text.count("limits differ, and this Waldur has no call to report those of the cluster: cpu=20")
        == 1
    )


class ChangedInBetween(MemoryBackend):
    """A cluster; `then` happens while it is read."""

    then: Callable[[], None] = staticmethod(lambda: None)

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        self.then()
        return super().observe(scope)


@pytest.mark.parametrize("number", [1, resources.LIST_ALL_FROM])
def test_metadata_that_waldur_changes_during_a_pass_is_kept(world: World, number: int) -> None:
    """An order that ends while the cluster is read changes `state`, and whatever else is there."""
    allocated = world.allocate_all(*(f"n{each}" for each in range(number)))
    for each, resource in enumerate(allocated):
        world.change(resource, backend_metadata={"state": "Creating", "qos": "old"})
        world.alter(f"a_n{each}", qos=frozenset({"normal"}))

    def end_orders() -> None:
        for resource in allocated:
            world.change(resource, backend_metadata={"state": "OK", "login_node": "login1", "qos": "old"})

    backend = ChangedInBetween(state=world.cluster, settings=world.backend.settings)
    backend.then = end_orders
    world.site = replace(world.site, backend=backend)
    report = world.sync()
    assert {o.action.verb for o in report.outcomes if o.done} == {"report metadata"}
    for resource in allocated:
        assert world.resource(resource).backend_metadata == {
            "state": "OK",
            "login_node": "login1",
            "qos": "normal",
        }
