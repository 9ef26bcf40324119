# SPDX-License-Identifier: MIT
"""Passes over one cluster at once: what a decision allows and what it costs people is one transaction."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.actions import Action, RemoveMember
from agent.core.associations import Association
from agent.core.model import Account, Snapshot
from agent.core.policy import Cost
from agent.plan.policy.gate import Decision
from agent.plan.policy.rules import PolicyContext
from agent.run import engine, gate
from agent.state import store
from agent.state.store import NAME, Store
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.engine.worlds import charged, with_room_for
from tests.world import World

pytestmark = pytest.mark.safety

PASSES, ROOM = 20, 12


@dataclass(frozen=True)
class Leaver:
    """One user leaves an account: the plan of one pass."""

    snapshot: Snapshot
    user: str
    context: PolicyContext = field(default_factory=lambda: PolicyContext(named=frozenset({"a_one"})))
    is_whole: bool = False

    @property
    def actions(self) -> Sequence[Action]:
        return [RemoveMember(account="a_one", user=self.user)]


@pytest.mark.parametrize("room", [ROOM, 1])
def test_twenty_passes_at_once_find_no_more_room_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    # The last of twenty writers waits for all others, however slow they are.
    monkeypatch.setattr(Store.__init__, "__defaults__", (NAME, 600.0))
    monkeypatch.setattr(store, "BUSY_S", 600.0)
    with SimulatedWaldur(scenario=Scenario()) as waldur:
        world = World(waldur, tmp_path)
        world.allocate("one")
        users = [f"u{number}" for number in range(PASSES + 5)]
        state = world.backend.state
        accounts = {**state.accounts, "a_one": Account("a_one", state.accounts["a_one"].parent)}
        inside = frozenset(Association("a_one", user) for user in users)
        world.backend.state = replaced = Snapshot(
            state.cluster, accounts=accounts, associations=inside, complete=state.complete
        )
        site = with_room_for(world.site, {Cost.MEMBERS_REMOVED: room})
        with Store(site.state_dir).write() as db:
            db.run("DELETE FROM charges")
        together = threading.Barrier(PASSES)

        def decided(user: str) -> Decision:
            with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
                together.wait()
                return gate.decide(run, "members", Leaver(replaced, user))

        with ThreadPoolExecutor(PASSES) as pool:
            decisions = list(pool.map(decided, users[:PASSES]))
    allowed = [each for each in decisions if each.allowed]
    assert len(allowed) == len(charged(site)) == room
    assert all(len(each.held) == 1 for each in decisions if not each.allowed)
