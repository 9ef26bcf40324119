# SPDX-License-Identifier: MIT
"""A kill at every step of the loop, for each mode: ordinary passes finish the work, once, and nobody pays for it.

The budgets have room for what is due and for nothing more, so that a charge that counted twice would be held. Orders
have their own: `tests/orders/test_every_step.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.policy import Budget, Charge, Cost
from agent.run import passes
from agent.run.site import Site
from agent.sim.seed import Scenario
from agent.sim.server import SimulatedWaldur
from agent.state import charges
from agent.state.plans import HeldRow, Shelf
from agent.waldur.client import WaldurClient
from tests.engine import kills
from tests.engine.kills import Kill
from tests.membership.world import World
from tests.scale import steps

EFFECTS_AT_MOST = 400
TEAM = 4


def restarted(site: Site) -> Site:
    """The site as a process that has just started knows it."""
    client = WaldurClient(
        site.offering.access,
        user_agent="waldur-site-agent-test",
        offering_uuid=site.offering.uuid,
        attempts=1,
    )
    return replace(site, client=client)


def with_room_for(site: Site, budgets: Mapping[Cost, int]) -> Site:
    """The site with budgets of so much, and of nothing else."""
    rules = site.offering.policy
    exact = {cost: Budget(budgets.get(cost, 0), budgets.get(cost, 0)) for cost in Cost}
    rules = replace(
        rules,
        budgets=exact,
        max_removed_members=exact[Cost.MEMBERS_REMOVED].hour,
        max_removed_accounts=exact[Cost.ACCOUNTS_EMPTIED].hour,
    )
    return replace(site, offering=replace(site.offering, policy=rules))


def waiting(site: Site, mode: str = Mode.MEMBERSHIP_SYNC) -> list[HeldRow]:
    return Shelf(site.state_dir, site.offering, mode).waiting()


def approve(site: Site, mode: str = Mode.MEMBERSHIP_SYNC) -> None:
    """All that waits."""
    shelf = Shelf(site.state_dir, site.offering, mode)
    for plan in shelf.waiting():
        shelf.approve(plan.id, expires=datetime.now(UTC) + timedelta(hours=1), by="test")


def charged(site: Site) -> set[Charge]:
    """What people have borne without an approval."""
    return set(charges.history(site.state_dir, site.backend.cluster, datetime.now(UTC)).day)


# Membership ------------------------------------------------------------------------------------------


class Due(World):
    """Something of every kind is due: leavers, a joiner, a pause, a cut, a move, a lost backend id, a closed
    allocation, and a team that is gone as a whole, which waits for a person.
    """

    ROOM = {
        Cost.MEMBERS_REMOVED: 4,
        Cost.ACCOUNTS_EMPTIED: 2,
        Cost.ACCOUNTS_BLOCKED: 1,
        Cost.ACCOUNTS_MOVED: 1,
        Cost.LIMITS_CUT: 1,
    }

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        super().__init__(
            waldur,
            folder,
            backend={"qos_default": "normal", "qos_paused": "stop"},
            limits_source="waldur",
        )
        places = {"one": 0, "cut": 0, "paused": 1, "moved": 1, "lost": 1, "closed": 1, "gone": 2}
        projects = waldur.seed.project_uuids
        orders = {
            name: waldur.place_create_order(projects[place], name, limits={"cpu": 10, "mem": 2}, slug=name)
            for name, place in places.items()
        }
        passes.process_orders(self.site)
        self.uuids = {name: waldur.order(order).resource_uuid for name, order in orders.items()}
        first = sorted(self.members("a_one"))
        self.leaver, self.mover = first[:2]
        self.join(self.person(self.mover), project=1, account=self.mover)
        self.settled()
        self.teams = {name: self.members(f"a_{name}") for name in places}
        self.homes = dict(self.cluster.default_accounts)
        for user in (self.leaver, self.mover):
            self.leave(user)
        self.join("newcomer", project=1)
        for user in self.members("a_gone"):
            self.leave(user, project=2)
        self.change(self.uuids["one"], state="Erred", error_message="old")
        self.change(self.uuids["cut"], limits={"cpu": 5, "mem": 2})
        self.change(self.uuids["paused"], paused=True)
        self.change(self.uuids["lost"], backend_id="")
        self.change(self.uuids["closed"], restrict_member_access=True)
        self.place = self.cluster.accounts["a_moved"].parent
        self.alter("a_moved", parent="root")
        self.backend.state = replace(self.cluster, used={"a_cut": {"cpu": 10}})
        self.backend.applied.clear()
        self.site = with_room_for(self.site, self.ROOM)
        self.backend.outage = kills.in_memory

    def wrong(self) -> list[str]:
        """Everything that is not as it must be in the end, but for what waits."""
        first, second = ({self.leaver, self.mover}, {"newcomer"})
        expected = {
            "one": self.teams["one"] - first,
            "cut": self.teams["cut"] - first,
            "closed": set[str](),
            "gone": self.teams["gone"],
            **{name: self.teams[name] | second for name in ("paused", "moved", "lost")},
        }
        accounts = self.cluster.accounts
        checks = {
            "teams": {name: self.members(f"a_{name}") for name in self.teams} == expected,
            "a state": {self.resource(uuid).state.value for uuid in self.uuids.values()} == {"OK"},
            "the cut": accounts["a_cut"].limits["cpu"] == 300,
            "the pause": accounts["a_paused"].default_qos == "stop",
            "the place": accounts["a_moved"].parent == self.place,
            "the backend id": self.resource(self.uuids["lost"]).backend_id == "a_lost",
            "default accounts": all(
                self.cluster.default_accounts[each.user] in self.cluster.accounts_of(each.user)
                for each in self.cluster.associations
            ),
        }
        found = [name for name, is_right in checks.items() if not is_right]
        twice = [action for action, count in Counter(self.backend.applied).items() if count > 1]
        return found + [f"twice: {action.render()}" for action in twice]


    def charges(self) -> set[Charge]:
        """What all of it costs people, but for what waits."""
        removed = {
            Charge(Cost.MEMBERS_REMOVED, account, user)
            for account in ("a_one", "a_cut")
            for user in (self.leaver, self.mover)
        }
        others = {
            Cost.ACCOUNTS_EMPTIED: "a_closed",
            Cost.ACCOUNTS_BLOCKED: "a_paused",
            Cost.ACCOUNTS_MOVED: "a_moved",
            Cost.LIMITS_CUT: "a_cut",
        }
        return removed | {Charge(cost, account) for cost, account in others.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: tmp_path_factory.mktemp("killed")


@contextmanager
def due(folders: Callable[[], Path]) -> Iterator[Due]:
    scenario = Scenario(members_per_project=TEAM, projects_per_customer=3)
    with SimulatedWaldur(scenario=scenario) as waldur:
        yield Due(waldur, folders())



def test_members_after_a_kill_at_any_step(folders: Callable[[], Path]) -> None:
    for step in steps(EFFECTS_AT_MOST, start=1):
        with due(folders) as world:
            with kills.before(step, world.site.state_dir) as kill:
                world.sync()
            world.site = restarted(world.site)
            held = {plan.id for plan in waiting(world.site)}
            last = [world.sync() for _ in range(3)][-1]
            assert world.wrong() == [], f"{kill}"
            assert {plan.id for plan in last.held} == {plan.id for plan in waiting(world.site)} >= held, f"{kill}"
            assert len(last.held) == 1, [plan.reason for plan in last.held]
            assert charged(world.site) == world.charges(), f"{kill}"
            assert not world.changes(last), f"{kill}"
        if not kill.struck:
            break
    assert 40 < step < EFFECTS_AT_MOST
