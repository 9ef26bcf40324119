# SPDX-License-Identifier: MIT
"""What other tests take for an allocation, without a pass, is what an order leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from agent.core.ownership import Ledger
from agent.state import ledger
from agent.state.store import Store
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import AnyWorld, World

# They are others in each world.
ITS_OWN = ("uuid", "created", "modified", "offering_uuid", "project_uuid", "plan_uuid")
MAKE = [World.allocate_all, AnyWorld.allocate_all]


def left(folder: Path, make: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """What stands on the cluster, in Waldur and in the state file, and what a pass over members finds to do."""
    scenario = Scenario(members_per_project=3, projects_per_customer=2, unnamed_members=1)
    with SimulatedWaldur(scenario=scenario) as waldur:
        waldur.site.add_shared_account(waldur.seed.project_uuids[0], "Robot")
        folder.mkdir()
        world = World(waldur, folder, **options)
        world.stray("ffrost5", "root")
        make(world, "one", "Two-Two", cpu=1.5, mem=2, gpu=7)
        make(world, "three", project=1)
        resources = [asdict(each) for each in waldur.site.resources()]
        told = [{name: value for name, value in each.items() if name not in ITS_OWN} for each in resources]
        orders = [(order.state, order.completed_at is None) for order in waldur.orders.all()]
        known = ledger.read(world.site.state_dir, world.backend.cluster, world.site.offering.uuid)
        assert known != Ledger()
        with Store(world.site.state_dir).read() as db:
            (listed,) = [tuple(row) for row in db.rows("SELECT name, named FROM ledgers")]
        cluster = {f"cluster: {name}": value for name, value in asdict(world.cluster).items()}
        changes = world.changes(world.sync(), reasons=False)
        return {**cluster, "Waldur": told, "orders": orders, "ledger": (known, listed), "next pass": changes}


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with a policy": {
        "limits_source": "waldur",
        "preserve_unmanaged_backend_users": True,
        "policy": {"mode": "upsert-only"},
    },
    "with names": {"username_management_backend": "template"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_an_allocation_without_a_pass_is_as_an_order_leaves_it(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    direct, passed = (left(tmp_path / make.__qualname__, make, options) for make in MAKE)
    assert direct == passed
