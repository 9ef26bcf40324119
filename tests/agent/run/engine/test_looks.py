# SPDX-License-Identifier: MIT
"""A pass that only shows what would be done changes nothing: no file, no byte of the state, nothing in Waldur, on the
cluster, in a directory or on this host. Each of the three lists looks, and every effect is heard of where it happens.

Worlds in which passes are killed are looked at in this way as well (`killed_everywhere`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.run import passes
from agent.run.gate import Pass
from backends.testing.memory import MemoryBackend
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.engine import kills
from tests.agent.run.engine import test_events_at_every_step as events
from tests.agent.run.engine import test_every_step as ordinary
from tests.agent.run.engine.worlds import looks
from tests.agent.run.membership.test_account_lists import an_hour_later, other_process
from tests.agent.run.orders import test_every_step as orders
from tests.world import World

pytestmark = pytest.mark.safety


def kinds(found: Mapping[Mode, Pass], mode: Mode) -> set[str]:
    """The kinds of actions that a look of this mode shows."""
    return {type(action).__name__ for work in found[mode].works for action in work.plan.actions}


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=4, projects_per_customer=3)) as server:
        yield server


def test_the_watch_hears_of_what_a_pass_changes(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    """Otherwise nothing below would prove anything."""
    site = ordinary.Due(waldur, tmp_path).moment.again()
    with kills.watching(site.state_dir) as watch:
        passes.sync_members(site)
    heard = {change.split()[0].removeprefix(str(site.state_dir)) for change in watch.changes()}
    assert {"apply", "request", "open", "/state.sqlite3", "/journal/journal.jsonl"} <= heard, heard


def test_a_site_that_has_not_run_yet(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    """Neither a state file nor an account is there, and no order waits."""
    world = World(waldur, tmp_path)
    found = looks(world.site)
    assert {Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC} <= set(found)
    assert not world.site.state_dir.exists()


@pytest.mark.parametrize("listing", ["list_project_service_accounts", "list_course_accounts"])
def test_looks_at_a_waldur_that_lacks_a_listing_remove_no_member(
    waldur: SimulatedWaldur, tmp_path: Path, listing: str
) -> None:
    """Two answers an hour apart that a listing lacks are believed: those of passes that apply."""
    world = World(waldur, tmp_path)
    world.allocate("one")
    world.stray("robot", "a_one")
    waldur.inject(Fault(path=listing, status=404, times=None))
    for _ in range(2):
        other_process(world)
        looks(world.site)
        an_hour_later(world)
    other_process(world)
    assert world.sync().error is None
    assert "robot" in world.members("a_one")
    an_hour_later(world)
    other_process(world)
    assert "RemoveMember" in kinds(looks(world.site), Mode.MEMBERSHIP_SYNC)
    world.sync()
    assert "robot" not in world.members("a_one")


def test_orders(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    world = orders.World(waldur, tmp_path)
    found = kinds(looks(world.site), Mode.ORDER_PROCESS)
    assert {"CreateAccount", "DeleteAccount", "SetLimits", "FailOrder"} <= found


def test_messages_of_periodic_policies_that_wait(tmp_path: Path) -> None:
    with SimulatedWaldur(events.Held.age, scenario=events.SCENARIO) as server:
        held = events.Held(server, tmp_path)
        held.attempt()
        looks(held.world.site)
        assert held.wrong() == []


def test_a_message_of_a_periodic_policy_that_may_go_on(tmp_path: Path) -> None:
    with SimulatedWaldur(events.Approved.age, scenario=events.SCENARIO) as server:
        approved = events.Approved(server, tmp_path)
        assert "ResetRawUsage" in kinds(looks(approved.world.site), Mode.ORDER_PROCESS)
        assert approved.attempt()
        assert approved.wrong() == []


def test_keys(tmp_path: Path) -> None:
    with SimulatedWaldur(events.Keys.age, scenario=events.SCENARIO) as server:
        keys = events.Keys(server, tmp_path)
        assert isinstance(keys.backend, MemoryBackend)
        assert {"IssueKey", "PauseKey", "EndKey"} <= kinds(looks(keys.site), Mode.ORDER_PROCESS)
        assert keys.attempt()
        assert keys.wrong() == []


def test_usage_of_keys(tmp_path: Path) -> None:
    with SimulatedWaldur(events.KeysUsed.age, scenario=events.SCENARIO) as server:
        used = events.KeysUsed(server, tmp_path)
        assert "ReportKeyUsage" in kinds(looks(used.site), Mode.REPORT)
        assert used.attempt()
        assert used.wrong() == []
