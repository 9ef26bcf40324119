# SPDX-License-Identifier: MIT
"""People and homes that are made: an onboarding of hundreds needs no approval, all people of a large site wait once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.core.policy import BUDGETS, Budget, Cost
from agent.run import gate, passes
from agent.run.people import homes, posix_accounts, usernames
from agent.state.store import Store
from rig.slapd import Slapd
from simulator.server.waldur import SimulatedWaldur
from simulator.world.ages import Age
from simulator.world.seed import Scenario
from tests.agent.run.people.conftest import SCENARIO
from tests.agent.run.people.homes.conftest import HomeSite, homes_of, planned
from tests.backends.usernames.conftest import Looker, raw
from tests.world import World, approve

__all__ = ["homes_of"]

pytestmark = [pytest.mark.safety, pytest.mark.floods]

MANY, FEW = 60, 5
SMALL = Budget(50, 150)
Directories = Callable[..., World]


def small(*costs: Cost) -> dict[str, Any]:
    return {"budgets": {cost.value: {"hour": SMALL.hour, "day": SMALL.day} for cost in costs}}


def hour_passes(state_dir: Path) -> None:
    with Store(state_dir).write() as db:
        db.run("DELETE FROM charges")


# Homes --------------------------------------------------------------------------------------------


def test_homes_of_a_whole_large_site_wait_and_those_of_an_onboarding_do_not(homes_of: HomeSite) -> None:
    """By the budget that sites have where they set none. No process is started for what waits."""
    most = BUDGETS[Cost.HOMES_MADE].hour
    names = [f"user{number:04}" for number in range(most + 1)]
    homes_of.world.add_users(*names)
    site, host = homes_of.site(), homes_of.world.head_node()
    plan = planned(site, names[:-1], host)
    decision = gate.decide_dry(site, gate.rules_of(site), homes.KEY, plan)
    assert (len(decision.allowed), decision.held) == (most, ())
    report = homes_of.provision(*names, is_whole=True)
    assert (report.made, homes_of.world.calls()) == ([], [])


def test_many_homes_wait_and_go_on_after_one_approval(homes_of: HomeSite) -> None:
    names = [f"user{number:02}" for number in range(MANY)]
    homes_of.world.add_users(*names)
    homes_of.configure(policy=small(Cost.HOMES_MADE))
    assert len(homes_of.provision(*names[:FEW]).made) == FEW
    hour_passes(homes_of.state)
    assert homes_of.provision(*names[:-1], is_whole=True).made == []
    # One person has come, who is judged alone.
    waiting = homes_of.provision(*names, is_whole=True)
    assert (waiting.made, waiting.later) == (names[-1:], names[FEW:-1])
    (held,) = homes_of.waiting()
    assert held.reason.startswith(f"the homes of {MANY - FEW - 1} users would be made at once: user05")
    approve(homes_of.site(), homes.KEY)
    assert len(homes_of.provision(*names, is_whole=True).made) == MANY - FEW - 1
    assert homes_of.provision(*names, is_whole=True).outcomes == []
    assert homes_of.waiting() == []


# A directory that follows Waldur ------------------------------------------------------------------


@pytest.fixture
def followed(slapd: Slapd, tmp_path: Path) -> Iterator[Directories]:
    """A world of many people in Waldur, and none in the directory."""
    servers: list[SimulatedWaldur] = []

    def make(**policy: Any) -> World:
        waldur = SimulatedWaldur(
            Age.V8_1.value, scenario=Scenario(projects_per_customer=1, members_per_project=MANY)
        )
        waldur.__enter__()
        servers.append(waldur)
        waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options={})
        for uid, login in enumerate(waldur.seed.members[waldur.seed.project_uuids[0]], 5001):
            row = waldur.people.account(login)
            assert row is not None
            waldur.site.change("offering_users", row.uuid, uidnumber=uid, primarygroup=uid)
        directory = {"account_source": "waldur", "waldur_username_attribute": "employeeNumber"}
        return World(
            waldur,
            tmp_path,
            backend=raw(slapd, **directory),
            username_management_backend="ldap",
            policy=policy,
        )

    yield make
    for server in servers:
        server.__exit__(None, None, None)


def test_many_entries_wait_and_a_few_do_not(followed: Directories, slapd: Slapd) -> None:
    world = followed(**small(Cost.PEOPLE_MADE))
    named = [(row.uuid, row.username) for row in world.waldur.store.offering_users]
    names = [name for _, name in named]
    for uuid, _ in named[FEW:]:
        world.waldur.site.change("offering_users", uuid, username="")
    looker = Looker(slapd)
    world.allocate("one")
    world.sync()
    made = [name for name in names if looker.user(name)]
    assert len(made) == FEW
    hour_passes(world.site.state_dir)
    for uuid, name in named[FEW:]:
        world.waldur.site.change("offering_users", uuid, username=name)
    (held,) = world.sync().held
    assert held.reason.startswith(f"{MANY - FEW} new users would be made at once: ")
    writes = slapd.operations(" ADD dn=")
    world.sync()
    assert slapd.operations(" ADD dn=") == writes
    approve(world.site, posix_accounts.KEY)
    assert world.sync().held == ()
    assert all(looker.user(name) for name in names)
    looker.directory.close()


# Names that the agent gives -----------------------------------------------------------------------


@pytest.fixture
def nameless(slapd: Slapd, tmp_path: Path) -> Iterator[World]:
    """A world whose people get their names from the directory, which has none of them."""
    scenario = replace(SCENARIO, members_per_project=MANY, unnamed_members=MANY)
    with SimulatedWaldur(scenario=scenario) as waldur:
        yield World(
            waldur,
            tmp_path,
            backend=raw(slapd),
            username_management_backend="ldap",
            policy=small(Cost.PEOPLE_MADE),
        )


def named(world: World) -> int:
    return sum(bool(row.username) for row in world.waldur.store.offering_users)


def test_many_new_names_wait_and_a_few_do_not(nameless: World, slapd: Slapd) -> None:
    """With each name goes a user of the directory, with a number that is never given again."""
    world = nameless
    world.allocate("one")
    rows = list(world.waldur.store.offering_users)
    for row in rows[FEW:]:
        world.waldur.site.change("offering_users", row.uuid, is_restricted=True)
    assert world.sync().held == ()
    assert named(world) == FEW
    hour_passes(world.site.state_dir)
    for row in rows:
        world.waldur.site.change("offering_users", row.uuid, is_restricted=False)
    world.waldur.requests.reset()
    writes = slapd.operations(" ADD dn=")
    (held,) = world.sync().held
    assert held.reason.startswith(f"{MANY - FEW} new users would be made at once: ")
    assert (named(world), slapd.operations(" ADD dn=")) == (FEW, writes)
    assert {line.split()[0] for line in world.waldur.request_counts()} == {"GET"}
    approve(world.site, usernames.KEY)
    assert world.sync().held == ()
    assert named(world) == MANY
    # Waldur loses all names: who had one gets it again, whatever the budget.
    hour_passes(world.site.state_dir)
    for row in rows:
        world.waldur.site.change("offering_users", row.uuid, username="", state="Requested")
    assert passes.sync_members(world.site).held == ()
    assert named(world) == MANY
