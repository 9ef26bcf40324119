# SPDX-License-Identifier: MIT
"""Renamings in a directory that follows Waldur, and what stands in their way: all keep the accounts until then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.run import passes
from agent.run.diagnosis.person import explain, find_resource
from agent.run.preview import previews
from rig.slapd import Slapd
from simulator.world.records import OfferingUserState
from tests.agent.run.membership.followed_people import (
    CIDS_NUMBER,
    DIRECTORY,
    OTHERS,
    TEAM,
    change,
    in_waldur,
    looker,
    physics,
    plan_membership,
    world,
)
from tests.backends.usernames.conftest import Looker, raw
from tests.world import World

__all__ = ["looker", "world"]


def with_number_of_others(world: World, looker: Looker) -> None:
    looker.add_user("zed", CIDS_NUMBER)


def with_another_number(world: World, looker: Looker) -> None:
    change(world, world.person("newcid"), uidnumber=5077)


def with_a_name_of_others(world: World, looker: Looker) -> None:
    looker.add_user("newcid", 7070)


def without_number(world: World, looker: Looker) -> None:
    change(world, world.person("newcid"), uidnumber=None)


def with_a_name_of_the_system(world: World, looker: Looker) -> None:
    change(world, world.person("newcid"), username="daemon")


@pytest.mark.parametrize(
    "clash",
    [
        with_number_of_others,
        with_another_number,
        with_a_name_of_others,
        without_number,
        with_a_name_of_the_system,
    ],
)
def test_whose_renaming_cannot_be_made_keeps_the_accounts(
    world: World, looker: Looker, clash: Callable[[World, Looker], None]
) -> None:
    """All others join and leave in that time."""
    resource = world.allocate("one")
    world.sync()
    change(world, world.person("cid"), username="newcid")
    clash(world, looker)
    world.leave(world.person("eve"))
    world.join("fay")
    change(world, "fay", uidnumber=5050, primarygroup=6050)
    printed = plan_membership(world)
    assert [line for line in printed if "cid" in line or "daemon" in line] == []
    inside = {"ann", "bob", "cid", "dee", "fay"}
    for project in (world.waldur.seed.project_uuids[0], ""):
        report = world.sync(project=project)
        assert report.error is None and any(
            "it stays cid until that is resolved" in note for note in report.notes
        )
        assert world.cluster.users_of("a_one") == inside
        group = looker.group("a_one")
        assert group is not None and set(group.all("memberUid")) == inside
    assert set(physics(looker)[1]) >= {"ann", "cid", "dee"} and "eve" not in physics(looker)[1]
    world.waldur.place_create_order(world.project_of(resource), "two", limits={"cpu": 1}, slug="two")
    assert passes.process_orders(world.site).counted() == {"done": 1}
    world.sync()
    assert world.cluster.users_of("a_one") == world.cluster.users_of("a_two") == inside


def test_who_is_restricted_after_a_renaming_that_cannot_be_made_keeps_the_accounts(
    world: World, looker: Looker
) -> None:
    world.allocate("one")
    world.sync()
    login = world.person("cid")
    change(world, login, username="newcid")
    with_number_of_others(world, looker)
    world.sync()
    change(world, login, is_restricted=True)
    assert [line for line in plan_membership(world) if "cid" in line] == []
    for project in (world.waldur.seed.project_uuids[0], ""):
        world.sync(project=project)
        assert world.cluster.users_of("a_one") == set(TEAM)
        group = looker.group("a_one")
        assert group is not None and set(group.all("memberUid")) == set(TEAM)
    assert "cid" in physics(looker)[1]
    # Who is out of the team leaves, restricted or not.
    world.leave("newcid")
    world.sync()
    assert world.cluster.users_of("a_one") == set(OTHERS) - {"cid"} | {"ann"}


def test_a_deletion_ends_the_entry_that_could_not_be_renamed(world: World, looker: Looker) -> None:
    world.allocate("one")
    world.sync()
    login = world.person("cid")
    change(world, login, username="newcid")
    with_number_of_others(world, looker)
    world.waldur.people.set_account(login, "newcid", state=OfferingUserState.REQUESTED_DELETION)
    printed = "\n".join(plan_membership(world))
    steps = ("begin deletion", "remove member cid from a_one", "deactivate user cid", "complete deletion")
    assert [step for step in steps if step not in printed] == []
    report = world.sync()
    assert not report.failed, report.as_json()
    assert world.cluster.users_of("a_one") == set(TEAM) - {"cid"}
    row, cid = world.waldur.people.account(login), looker.user("cid")
    assert row is not None and (row.state, row.username) == (OfferingUserState.DELETED, "newcid")
    assert cid is not None and cid.first("loginShell") == "/usr/sbin/nologin"
    assert "cid" not in physics(looker)[1]
    assert [o.action.verb for o in world.sync().outcomes] == []


def test_no_member_joins_under_a_name_that_another_could_not_give_up(world: World, looker: Looker) -> None:
    """Else whoever logs in with it gets the allocation."""
    world.allocate("one")
    world.allocate("two", project=1)
    world.sync()
    login, before = world.person("cid"), world.members("a_two")
    change(world, login, username="newcid")
    with_number_of_others(world, looker)
    world.join("other", project=1, account="cid")
    change(world, "other", uidnumber=5050, primarygroup=6050)
    second = world.waldur.seed.project_uuids[1]
    assert [line for line in plan_membership(world) if "cid" in line and "two" in line] == []
    for project in (second, ""):
        report = world.sync(project=project)
        reason = "belongs to another person; no user joins an account under this name until that is resolved"
        assert any("directory: cid: " in note and reason in note for note in report.notes)
        assert (world.members("a_one"), world.members("a_two")) == (set(TEAM), before)
    assert in_waldur(world, "other") == "pending"
    # The deletion of the one is not held up by the other.
    world.waldur.people.set_account(login, "newcid", state=OfferingUserState.REQUESTED_DELETION)
    world.stray("cid", "a_two")
    world.sync()
    row, cid = world.waldur.people.account(login), looker.user("cid")
    assert row is not None and row.state is OfferingUserState.DELETED
    assert (world.members("a_one"), world.members("a_two")) == (set(TEAM) - {"cid"}, before)
    assert cid is not None and cid.first("loginShell") == "/usr/sbin/nologin"


def test_who_is_renamed_once_nothing_is_in_the_way_moves(world: World, looker: Looker) -> None:
    world.allocate("one")
    world.sync()
    login = world.person("cid")
    change(world, login, username="newcid", uidnumber=5077)
    world.sync()
    assert world.cluster.users_of("a_one") == set(TEAM)
    found = find_resource(world.site, "a_one")
    assert found is not None
    explained = explain(world.site, login, found)
    assert (explained.user, explained.coming) == ("cid", ())
    assert "cid in a_one" in " ".join(link.found for link in explained.links)
    change(world, login, uidnumber=CIDS_NUMBER)
    world.sync()
    assert world.cluster.users_of("a_one") == {*TEAM, "newcid"} - {"cid"}
    assert "newcid" in physics(looker)[1] and "cid" not in physics(looker)[1]


def test_a_plan_is_not_applied_where_a_renaming_cannot_be_made_any_more(world: World, looker: Looker) -> None:
    world.allocate("one")
    world.sync()
    change(world, world.person("cid"), username="newcid")
    planned = previews.preview(world.site, Mode.MEMBERSHIP_SYNC)
    looker.add_user("zed", CIDS_NUMBER)
    assert "the directory has not got all names" in str(planned.apply().error)
    assert world.cluster.users_of("a_one") == set(TEAM)
    # A new plan knows it.
    change(world, world.person("dee"), username="newdee")
    assert previews.preview(world.site, Mode.MEMBERSHIP_SYNC).apply().error is None
    assert world.cluster.users_of("a_one") == {"ann", "bob", "cid", "newdee", "eve"}


def test_who_can_never_be_made_holds_up_no_plan_but_of_whom_they_may_be(
    world: World, looker: Looker, slapd: Slapd, tmp_path: Path
) -> None:
    """The directory refuses the entry each time."""
    options = {**DIRECTORY, "user_object_classes": ["posixAccount", "nosuchclass"]}
    world.allocate("one")
    world.sync()
    other = World(world.waldur, tmp_path, backend=raw(slapd, **options), username_management_backend="ldap")
    other.backend.state = world.cluster
    other.join("fay")
    change(other, "fay", uidnumber=5050, primarygroup=6050)
    other.leave(other.person("eve"))
    planned = previews.preview(other.site, Mode.MEMBERSHIP_SYNC)
    assert {"create user", "remove member"} <= {action.verb for action in planned.allowed.actions}
    report = planned.apply()
    assert report.error is None and any("create user fay" in problem for problem in report.problems)
    assert other.cluster.users_of("a_one") == {*TEAM, "fay"} - {"eve"}
    # It is unknown who zoe is: it may be the name that fay had.
    other.stray("zoe", "a_one")
    report = previews.preview(other.site, Mode.MEMBERSHIP_SYNC).apply()
    assert "the directory has not got all names" in str(report.error)
    assert "zoe" in other.cluster.users_of("a_one")
