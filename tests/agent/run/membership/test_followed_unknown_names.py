# SPDX-License-Identifier: MIT
"""A directory that follows Waldur, where it is unknown which entry is whose."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.plan.posix_accounts import NO_NUMBERS
from rig.slapd import BASE, Slapd
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OfferingUserState
from simulator.world.seed import Scenario
from tests.agent.run.membership.followed_people import DIRECTORY, TEAM, change, looker, physics, world
from tests.backends.usernames.conftest import Looker, raw
from tests.world import World

__all__ = ["looker", "world"]


@pytest.fixture
def without_logins(world: World, slapd: Slapd, tmp_path: Path) -> World:
    """Entries do not say whose they are."""
    nameless = {**DIRECTORY, "waldur_username_attribute": ""}
    return World(world.waldur, tmp_path, backend=raw(slapd, **nameless), username_management_backend="ldap")


@pytest.mark.parametrize("number", [5003, None], ids=["same number", "no number"])
def test_where_the_old_name_is_unknown_who_may_be_that_person_stays(
    without_logins: World, looker: Looker, number: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Who is another person in Waldur leaves."""
    world = without_logins
    world.allocate("one")
    world.allocate("other", project=0)
    world.sync()
    change(world, world.person("cid"), username="newcid", uidnumber=number)
    world.leave(world.person("eve"))
    for project in (world.waldur.seed.project_uuids[0], ""):
        world.sync(project=project)
        assert world.cluster.users_of("a_one") == {"ann", "bob", "cid", "newcid", "dee"}
        group = looker.group("a_one")
        assert group is not None and "cid" in group.all("memberUid")
    assert "cid" in physics(looker)[1] and "eve" not in physics(looker)[1]
    assert ("a member without an entry in the directory may be meant" in caplog.text) is (number is None)
    # Who is made in the directory has the new name, and none the old one.
    change(world, world.person("newcid"), uidnumber=5077, primarygroup=6077)
    looker.directory.delete(f"uid=cid,ou=People,{BASE}")
    world.sync()
    assert world.cluster.users_of("a_one") == {"ann", "bob", "newcid", "dee"}


def test_a_deletion_is_not_completed_while_an_entry_may_be_the_persons(
    without_logins: World, looker: Looker
) -> None:
    world = without_logins
    world.allocate("one")
    world.sync()
    login = world.person("cid")
    change(world, login, username="newcid")
    world.waldur.people.set_account(login, "newcid", state=OfferingUserState.REQUESTED_DELETION)
    unknown = "it is unknown whether the entry of cid is of the same person"
    for _ in range(2):
        report = world.sync()
        assert any(unknown in note for note in report.notes)
        row, cid = world.waldur.people.account(login), looker.user("cid")
        assert row is not None and row.state is OfferingUserState.ERROR_DELETING
        assert cid is not None and cid.first("loginShell") == "/bin/zsh"
        assert world.cluster.users_of("a_one") == set(TEAM) - {"cid"}
    looker.directory.delete(f"uid=cid,ou=People,{BASE}")
    world.sync()
    row = world.waldur.people.account(login)
    assert row is not None and row.state is OfferingUserState.DELETED


def test_a_freed_name_that_another_person_gets_stays_where_it_may_be_the_old_one(
    without_logins: World, looker: Looker
) -> None:
    world = without_logins
    world.allocate("one")
    world.sync()
    change(world, world.person("cid"), username="newcid")
    elsewhere = world.waldur.seed.project_uuids[1]
    world.waldur.people.add_member(elsewhere, "other", account="cid")
    world.sync()
    assert world.cluster.users_of("a_one") == {*TEAM, "newcid"}
    assert "cid" in physics(looker)[1]


@pytest.mark.parametrize("project", [False, True], ids=["everything", "event"])
def test_where_waldur_shows_no_numbers_people_keep_the_names_of_their_entries(
    slapd: Slapd, looker: Looker, tmp_path: Path, project: bool
) -> None:
    """Who is another person in Waldur leaves, and is deleted."""
    scenario = Scenario(members_per_project=len(TEAM))
    with SimulatedWaldur("8.0", scenario=scenario) as waldur:
        (first, *_) = waldur.seed.project_uuids
        for login, name in zip(waldur.seed.members[first], TEAM, strict=True):
            waldur.people.set_account(login, name)
        waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options={})
        world = World(waldur, tmp_path, backend=raw(slapd, **DIRECTORY), username_management_backend="ldap")
        world.allocate("one")
        world.sync()
        dee = world.person("dee")
        looker.add_user("dee", 5004, employeeNumber=dee)
        change(world, world.person("cid"), username="newcid")
        change(world, dee, username="newdee")
        world.leave(world.person("eve"))
        report = world.sync(project=first if project else "")
        assert f"directory: {NO_NUMBERS}" in report.notes
        assert [note for note in report.notes if "no member is removed" in note] == []
        # Of newcid there is no entry at all: no user in Waldur is called cid, who may be that person.
        inside = {"ann", "bob", "cid", "newcid", "dee"}
        assert world.cluster.users_of("a_one") == inside
        group = looker.group("a_one")
        assert group is not None and {"cid", "dee"} <= set(group.all("memberUid"))
        bob = world.person("bob")
        waldur.people.set_account(bob, "bob", state=OfferingUserState.REQUESTED_DELETION)
        world.sync()
        row = world.waldur.people.account(bob)
        assert row is not None and row.state is OfferingUserState.DELETED
        assert world.cluster.users_of("a_one") == inside - {"bob"}
