# SPDX-License-Identifier: MIT
"""People of one project in a real OpenLDAP that follows Waldur."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.policy import PolicyRules
from agent.run.preview import previews
from rig.slapd import BASE, Slapd
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.backends.usernames.conftest import Looker, raw
from tests.world import World

PLACE = f"ou=projects,{BASE}"
DIRECTORY: dict[str, Any] = {
    "account_source": "waldur",
    "default_home_base": "/data",
    "waldur_username_attribute": "employeeNumber",
    "project_groups": {"enabled": True},
}
TEAM = ("ann", "bob", "cid", "dee", "eve")
OTHERS = TEAM[1:]
CIDS_NUMBER = 5003
OPTIONS = {"enable_membership_sync_status": True}


@pytest.fixture
def looker(slapd: Slapd) -> Iterator[Looker]:
    looker = Looker(slapd)
    looker.directory.add(PLACE, ["organizationalUnit", "top"], {"ou": ["projects"]})
    yield looker
    looker.directory.close()


@pytest.fixture
def world(slapd: Slapd, looker: Looker, tmp_path: Path) -> Iterator[World]:
    """One project with a group; bob's entry has other numbers than Waldur. Five members, so that what ann alone costs
    (renamed, removed, released) is not more than half of them and is not held.
    """
    scenario = Scenario(members_per_project=len(TEAM), plugin_options=OPTIONS)
    with SimulatedWaldur("8.1", scenario=scenario) as waldur:
        project = waldur.seed.project_uuids[0]
        for uid, (login, name) in enumerate(zip(waldur.seed.members[project], TEAM, strict=True), 5001):
            row = waldur.people.set_account(login, name)
            numbers = {"uidnumber": uid, "primarygroup": uid + 1000}
            waldur.site.change(
                "offering_users", row.uuid, **numbers, home_directory=f"/data/{name}", login_shell="/bin/zsh"
            )
        waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options=OPTIONS)
        waldur.site.add_project_group(project, "physics", 20001)
        looker.add_user("bob", 7777)
        yield World(waldur, tmp_path, backend=raw(slapd, **DIRECTORY), username_management_backend="ldap")


def change(world: World, login: str, **values: object) -> None:
    row = world.waldur.people.account(login)
    assert row is not None
    world.waldur.site.change("offering_users", row.uuid, **values)


def entry(looker: Looker, name: str, *attributes: str) -> list[str]:
    """What the directory has of a person, whose entry is there."""
    found = looker.user(name)
    assert found is not None
    return [found.first(attribute) for attribute in attributes]


def physics(looker: Looker) -> tuple[str, list[str]]:
    (group,) = looker.directory.search(PLACE, "(cn=physics)", ["gidNumber", "memberUid"])
    return group.first("gidNumber"), sorted(group.all("memberUid"))


def in_waldur(world: World, login: str) -> str:
    """The state of the person's membership in Waldur."""
    store = world.waldur.store
    (state,) = (
        status for (_, who, _), status in store.member_statuses.items() if store.users[who].username == login
    )
    return state[0]


def set_policy(world: World, policy: PolicyRules) -> None:
    world.site = replace(world.site, offering=replace(world.site.offering, policy=policy))


def plan_membership(world: World) -> list[str]:
    """What the operator is shown that a pass would do."""
    return [action.line() for action in previews.preview(world.site, Mode.MEMBERSHIP_SYNC).allowed.actions]
