# SPDX-License-Identifier: MIT
"""A kill at every step of what names people, and of what makes their homes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from agent.core.policy import Charge, Cost
from agent.run.site import Site
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.engine import directory
from tests.agent.run.engine.directory import Groups
from tests.agent.run.engine.worlds import (
    Moment,
    charged,
    killed_everywhere,
    members_pass,
    unchanged,
    with_room_for,
)
from tests.agent.run.membership.test_optional_modes import NAMES
from tests.agent.run.people import scripted
from tests.agent.run.people.homes.conftest import XFS, HomeSite
from tests.world import World

pytestmark = pytest.mark.safety

# Names and groups -------------------------------------------------------------------------------------


class Nameless(World):
    """Half of each team have no name yet; no group stands but one, with a stranger in it."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path, groups: Groups) -> None:
        super().__init__(
            waldur, folder, backend={"ldap": directory.SETTINGS}, username_management_backend="scripted"
        )
        self.groups = groups
        self.fill()
        named = frozenset(member for member in self.cluster.associations if member.user)
        self.backend.state = replace(self.cluster, associations=named)
        nameless = [row.uuid for row in waldur.store.offering_users if not row.username]
        room = {Cost.GROUP_MEMBERS_REMOVED: 1, Cost.PEOPLE_MADE: len(nameless)}
        self.site = with_room_for(self.site, room)
        self.accounts = sorted(name for name in self.cluster.accounts if name.startswith("a_"))
        self.charges = {Charge(Cost.PEOPLE_MADE, "", uuid) for uuid in nameless}
        self.charges.add(Charge(Cost.GROUP_MEMBERS_REMOVED, self.accounts[0], "stranger"))
        groups.members = {self.accounts[0]: frozenset({"stranger"})}
        self.moment = Moment(waldur, self.site, folder)

    def again(self) -> None:
        self.groups.members = {self.accounts[0]: frozenset({"stranger"})}
        self.groups.applied.clear()

    def wrong(self) -> list[str]:
        """Everything that is not as it must be in the end."""
        found = []
        for number, (project, team) in enumerate(self.waldur.seed.members.items()):
            rows = [self.waldur.people.account(login) for login in team]
            found += [f"{row.username}: {row.state}" for row in rows if row and row.state.value != "OK"]
            names = {row.username for row in rows if row}
            account = self.accounts[number]
            if not (names == self.members(account) == self.groups.members.get(account)) or len(names) != 4:
                found.append(f"{account} of {project}")
        applied = [*self.backend.applied, *self.groups.applied]
        return found + [f"twice: {action}" for action, count in Counter(applied).items() if count > 1]


@pytest.fixture
def nameless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nameless]:
    for name in ("names", "groups"):
        (tmp_path / name).mkdir()
    scripted.install(tmp_path / "names", monkeypatch)
    groups = directory.install(tmp_path / "groups", monkeypatch)
    scenario = Scenario(
        projects_per_customer=2,
        members_per_project=4,
        unnamed_members=2,
        allocations_per_project=1,
        plugin_options=NAMES,
    )
    with SimulatedWaldur(scenario=scenario) as waldur:
        yield Nameless(waldur, tmp_path, groups)


def test_names_and_groups(nameless: Nameless) -> None:
    def killed(site: Site) -> None:
        nameless.again()
        members_pass(site)

    def then(site: Site, place: str) -> None:
        last = [members_pass(site) for _ in range(2)][-1]
        assert (nameless.wrong(), last.held) == ([], ()), place
        assert charged(site) == nameless.charges, place

    assert killed_everywhere(nameless.moment, killed, then) > 30


# Homes --------------------------------------------------------------------------------------------------


class Homed:
    """ann has a home whose quota is to be lowered, and bob has none. It is had anew in a folder of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folders = (folder / str(number) for number in count())
        self._monkeypatch = monkeypatch

    def again(self) -> Site:
        self.node = node = HomeSite(next(self._folders))
        self._monkeypatch.setenv("PATH", f"{node.world.bin}:{os.environ['PATH']}")
        node.world.add_users("ann", "bob")
        node.world.file_systems(xfs="/xfs")
        node.configure(quota=XFS)
        node.provision("ann")
        room = {Cost.QUOTAS_LOWERED.value: {"hour": 1, "day": 1}}
        node.configure(quota={**XFS, "block_hardlimit": "5g"}, policy={"budgets": room})
        return node.site()

    def look(self, site: Site) -> None:
        with unchanged(site, "homes"):
            assert self.node.plan("ann", "bob")

    def settle(self, _: Site) -> None:
        self.node.provision("ann", "bob")


def test_homes_and_quotas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made once; a quota that is lowered is charged once, and set until it is known to be."""
    homed = Homed(tmp_path, monkeypatch)

    def then(site: Site, place: str) -> None:
        homed.settle(site)
        world = homed.node.world
        quotas = {user: about["bhard"] for user, about in world.kept("xfs")["/xfs"].items()}
        assert quotas == {"ann": 5 << 30, "bob": 5 << 30}, place
        assert world.made() == {"ann", "bob"}, place
        made = Counter(call[1] for call in world.calls("mkhomedir_helper"))
        assert set(made.values()) == {1}, place
        homes = {Charge(Cost.HOMES_MADE, "", user) for user in ("ann", "bob")}
        assert charged(site) == homes | {Charge(Cost.QUOTAS_LOWERED, "", "ann")}, place

    assert killed_everywhere(homed, homed.settle, then, look=homed.look) > 8
