# SPDX-License-Identifier: MIT
"""Names that other offerings rely on, and accounts that are found at a first look."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from agent.core.associations import Association
from agent.core.model import Account
from agent.core.ownership import Origin
from agent.run import passes
from agent.state import ledger
from agent.state.store import NAME, Store
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.gate.foreign_accounts import PEOPLE, put_physics, questions, world
from tests.world import World

__all__ = ["world"]

pytestmark = pytest.mark.safety

# Names that other offerings rely on -----------------------------------------------------------------------


def test_a_short_listing_takes_no_name_from_the_others_for_an_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = world.allocate("one"), world.allocate("two")
    world.converge()
    where = (world.site.state_dir, world.backend.cluster)

    def others() -> set[str]:
        return set(ledger.of_others(*where, "f" * 32, {}).accounts)

    assert others() == {"a_one", "a_two"}
    world.change(one, offering_uuid="e" * 32)  # consistent, and short
    world.sync()
    assert others() == {"a_one", "a_two"}
    monkeypatch.setattr(ledger, "BELIEVED_AFTER", timedelta(0))
    world.sync()
    assert others() == {"a_two"}
    world.waldur.orders.place_terminate(two)
    passes.process_orders(world.site)
    assert others() == set(), "an end that was seen"


def test_a_listing_that_is_whole_again_begins_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _two = world.allocate("one"), world.allocate("two")
    world.converge()
    offering = world.resource(one).offering_uuid
    world.change(one, offering_uuid="e" * 32)
    world.sync()
    world.change(one, offering_uuid=offering)
    world.sync()
    monkeypatch.setattr(ledger, "BELIEVED_AFTER", timedelta(0))
    world.change(one, offering_uuid="e" * 32)
    world.sync()
    found = ledger.of_others(world.site.state_dir, world.backend.cluster, "f" * 32, {})
    assert set(found.accounts) == {"a_one", "a_two"}


def test_an_account_with_our_prefix_below_one_of_others_is_not_found(world: World) -> None:
    """Also when the offering is seen for the first time."""
    resource = world.allocate("one")
    world.converge()
    put_physics(world)
    state = world.backend.state
    world.backend.state = replace(
        state,
        accounts={**state.accounts, "a_lab": Account("a_lab", "physics")},
        associations=state.associations | {Association("a_lab", user) for user in PEOPLE},
    )
    world.change(resource, backend_id="a_lab")
    (world.site.state_dir / NAME).unlink()
    world.waldur.orders.place_terminate(resource)
    report = passes.process_orders(world.site)
    assert len(report.held) == 1 and "a_lab" in world.cluster.accounts
    assert world.cluster.users_of("a_lab") == PEOPLE
    assert [line.partition(",")[0] for line in questions(world)] == ["adopt account a_lab"]


@pytest.mark.parametrize("first", ["order", "event"])
def test_a_first_look_at_a_part_asks_about_no_account_of_ours(tmp_path: Path, first: str) -> None:
    with SimulatedWaldur(scenario=Scenario(members_per_project=2, projects_per_customer=2)) as waldur:
        bare = {"customer_prefix": "", "project_prefix": "", "allocation_prefix": ""}
        world = World(waldur, tmp_path, backend=bare)
        one, _ = world.allocate("one"), world.allocate("two")
        world.converge()
        (world.site.state_dir / NAME).unlink()
        if first == "order":
            waldur.orders.place_update(one, {"cpu": 20})
            assert passes.process_orders(world.site).counted() == {"done": 1}
        else:
            world.sync(resource=one)
        world.join("newbie")
        world.sync()
        assert questions(world) == []
        assert "newbie" in world.cluster.users_of("two")


def test_what_another_offering_found_and_names_is_not_found_again(world: World) -> None:
    resource = world.allocate("one")
    world.converge()
    with Store(world.site.state_dir).write() as db:
        db.run("UPDATE ledger_accounts SET offering = 'other', origin = ?, named = 1", Origin.FOUND)
        db.run("UPDATE ledgers SET offering = 'other', name = 'Other'")
    world.waldur.orders.place_terminate(resource)
    report = passes.process_orders(world.site)
    assert "a_one" in world.cluster.accounts and report.held
    assert any(line.startswith("adopt account a_one, ") for line in questions(world))
