# SPDX-License-Identifier: MIT
"""A person's life in a real OpenLDAP that follows Waldur: numbers, groups, a renaming, something to do, the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.errors import BackendUnavailable, SiteAgentError, StateError
from agent.core.policy import Charge, Cost, PolicyRules
from agent.plan.posix_accounts import NOTHING_SHOWN
from agent.run import passes
from agent.run.diagnosis.person import explain, find_resource
from agent.run.membership import planning
from agent.run.people.naming import AWAY, STUCK, names_unknown
from agent.run.preview import previews
from agent.run.waldur_facts import confirm_people
from agent.state import charges, held_plans
from rig.slapd import BASE, Slapd
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OfferingUserState
from simulator.world.seed import Scenario
from tests.backends.usernames.conftest import Looker, raw
from tests.membership.world import World
from tests.one_mode import planned_members

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
    (renamed, removed, let go) is not more than half of them and is not held.
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


def physics(looker: Looker) -> tuple[str, list[str]]:
    (group,) = looker.directory.search(PLACE, "(cn=physics)", ["gidNumber", "memberUid"])
    return group.first("gidNumber"), sorted(group.all("memberUid"))


def shown(world: World, login: str) -> str:
    """The state of the person's membership in Waldur."""
    store = world.waldur.store
    (state,) = (
        told for (_, who, _), told in store.member_statuses.items() if store.users[who].username == login
    )
    return state[0]


def test_from_the_first_pass_to_the_last(world: World, looker: Looker) -> None:
    login = world.person("ann")
    world.allocate("one")
    report = world.sync()
    ann = looker.user("ann")
    assert ann is not None
    attributes = ("uidNumber", "gidNumber", "homeDirectory", "loginShell", "employeeNumber")
    assert [ann.first(name) for name in attributes] == ["5001", "6001", "/data/ann", "/bin/zsh", login]
    assert any("bob: it has 7777:7777 there, and 5002:6002 in Waldur" in note for note in report.notes)
    bob = looker.user("bob")
    assert bob is not None and bob.first("uidNumber") == "7777"
    # Whose entry does not agree gets no rights by a group, and keeps the account.
    assert physics(looker) == ("20001", ["ann", "cid", "dee", "eve"])
    assert world.members("a_one") == set(TEAM)
    world.sync()
    assert shown(world, login) == "synced"

    change(world, login, runtime_state="Pending account linking")
    world.sync()
    assert shown(world, login) == "pending"
    change(world, login, runtime_state="Active")

    change(world, login, username="anna")
    world.sync()
    anna, allocation = looker.user("anna"), looker.group("a_one")
    assert looker.user("ann") is None
    assert anna is not None and anna.first("uidNumber") == "5001"
    assert world.members("a_one") == {"anna", *OTHERS}
    assert allocation is not None and sorted(allocation.all("memberUid")) == ["anna", *OTHERS]
    assert physics(looker)[1] == ["anna", "cid", "dee", "eve"]
    assert shown(world, login) == "synced"

    world.waldur.people.set_account(login, "anna", state=OfferingUserState.REQUESTED_DELETION)
    done = world.sync()
    steps = ["begin deletion", "remove member", "deactivate user", "complete deletion"]
    verbs = [o.action.verb for o in done.outcomes if o.done and "anna" in o.action.line()]
    assert [verb for verb in verbs if verb in steps] == steps
    row, anna = world.waldur.people.account(login), looker.user("anna")
    assert row is not None and row.state is OfferingUserState.DELETED
    assert world.members("a_one") == set(OTHERS)
    assert physics(looker)[1] == ["cid", "dee", "eve"]
    assert anna is not None and anna.first("loginShell") == "/usr/sbin/nologin"
    assert anna.first("homeDirectory") == "/data/ann"
    assert [o.action.verb for o in world.sync().outcomes] == []


def test_who_is_not_renamed_yet_keeps_the_accounts(world: World, looker: Looker) -> None:
    """Else nobody could use them: the old name has none, and with the new one nobody can log in."""
    world.allocate("one")
    world.sync()
    unlimited = world.site.offering.policy
    set_policy(world, replace(unlimited, max_removed_members=1))
    for name in ("cid", "dee"):
        change(world, world.person(name), username=f"new{name}")
    # Whom somebody leaves is read again from Waldur.
    world.leave(world.person("eve"))
    shown_to_operator = plan_membership(world)
    for project in ("", world.waldur.seed.project_uuids[0]):
        report = world.sync(project=project)
        (held,) = report.held
        assert held.reason.startswith(
            "2 users of the directory would be disabled, renamed or changed at once"
        )
        assert [each.action.line() for each in report.outcomes if "new" in each.action.line()] == []
        assert world.cluster.users_of("a_one") == {"ann", "bob", "cid", "dee"}
        group = looker.group("a_one")
        assert group is not None and set(group.all("memberUid")) == {"ann", "bob", "cid", "dee"}
        assert looker.user("cid") and not looker.user("newcid")
        # The group of the project still has them, too.
        assert {"cid", "dee"} <= set(physics(looker)[1])
    assert [line for line in shown_to_operator if "new" in line] == []
    set_policy(world, replace(unlimited, max_removed_percent=100))
    approve_everything(world)
    report = world.sync()
    assert (report.error, report.held) == (None, ())
    assert world.cluster.users_of("a_one") == {"ann", "bob", "newcid", "newdee"}
    assert looker.user("newcid") and not looker.user("cid")


def test_who_is_renamed_while_the_directory_is_away_keeps_the_accounts(
    world: World, looker: Looker, slapd: Slapd
) -> None:
    """Nobody knows then which name the directory has. Who has left keeps theirs that long, too."""
    resource = world.allocate("one")
    world.sync()
    renamed, left, deleted = (world.person(name) for name in ("cid", "dee", "eve"))
    looker.directory.close()
    slapd.stop()
    change(world, renamed, username="newcid")
    world.leave(left)
    world.waldur.people.set_account(deleted, "eve", state=OfferingUserState.REQUESTED_DELETION)
    planned = previews.preview(world.site, Mode.MEMBERSHIP_SYNC)
    assert [each.verb for each in planned.allowed.actions] == ["add member"]
    assert any(f"2 who are not of its team stay for now: {AWAY}" in note for note in planned.notes)
    for project in ("", world.waldur.seed.project_uuids[0]):
        report = world.sync(project=project)
        (note,) = (
            note for note in report.notes if note.startswith("nobody leaves an account in this pass: ")
        )
        assert f"{AWAY} (LDAP " in note
        assert [words for words in report.problems if words.startswith("usernames: ")] != []
        assert report.error is None and report.retryable_error is not None
        assert world.cluster.users_of("a_one") == {*TEAM, "newcid"}
    world.waldur.place_create_order(world.project_of(resource), "two", limits={"cpu": 1}, slug="two")
    assert passes.process_orders(world.site).counted() == {"done": 1}
    assert world.cluster.users_of("a_one") == {*TEAM, "newcid"}
    row = world.waldur.people.account(deleted)
    assert row is not None and row.state is OfferingUserState.REQUESTED_DELETION

    slapd.start()
    # Three of those five who were in before.
    set_policy(world, replace(world.site.offering.policy, max_removed_percent=100))
    report = world.sync()
    assert (report.error, report.held) == (None, ())
    for account in ("a_one", "a_two"):
        assert world.cluster.users_of(account) == {"ann", "bob", "newcid"}
    assert looker.user("newcid") and not looker.user("cid")
    assert physics(looker)[1] == ["ann", "newcid"]
    row = world.waldur.people.account(deleted)
    assert row is not None and row.state is OfferingUserState.DELETED


@pytest.mark.parametrize("error", [BackendUnavailable("no answer"), StateError("the disk is full")])
def test_why_nobody_leaves_is_told_with_its_cause(world: World, error: SiteAgentError) -> None:
    """It need not be the directory that is at fault."""
    facts = planned_members(world.site).facts.waldur.offering
    told = names_unknown(world.site, facts, error)
    assert str(error) in told and not any(word in told for word in ("read", "cannot"))


def test_where_the_directory_makes_the_names_its_outage_keeps_nobody(
    world: World, slapd: Slapd, looker: Looker, tmp_path: Path
) -> None:
    """What Waldur says of names holds there: nothing has to happen in the directory first."""
    other = World(world.waldur, tmp_path, backend=raw(slapd), username_management_backend="ldap")
    other.allocate("one")
    other.sync()
    looker.directory.close()
    slapd.stop()
    change(other, other.person("cid"), username="newcid")
    report = other.sync()
    assert [words for words in report.problems if words.startswith("usernames: ")] != []
    assert (report.error, report.notes) == (None, [])
    assert other.cluster.users_of("a_one") == {*TEAM, "newcid"} - {"cid"}


def test_who_is_renamed_between_two_looks_at_waldur_keeps_the_accounts(world: World) -> None:
    world.allocate("one")
    world.sync()
    facts = planned_members(world.site).facts
    change(world, world.person("cid"), username="newcid")
    world.leave(world.person("eve"))
    waldur = confirm_people(world.site, facts.waldur, facts.waldur.resources)
    lines = [action.line() for action in planning.plan(replace(facts, waldur=waldur)).actions]
    assert [line for line in lines if "remove member" in line] == ["remove member eve from a_one"]
    assert [line for line in lines if "cid" in line] == []


@pytest.mark.parametrize("is_away", [True, False])
def test_a_plan_is_not_applied_where_the_directory_keeps_the_old_names(
    world: World, looker: Looker, slapd: Slapd, is_away: bool
) -> None:
    """It is away, or the renaming is held by then for what others have lost."""
    world.allocate("one")
    world.sync()
    change(world, world.person("cid"), username="newcid")
    planned = previews.preview(world.site, Mode.MEMBERSHIP_SYNC)
    assert "remove member" in {each.verb for each in planned.allowed.actions}
    if is_away:
        looker.directory.close()
        slapd.stop()
    else:
        spent = [Charge(Cost.MEMBERS_REMOVED, "a_one", f"other{number}") for number in range(50)]
        where = {"cluster": world.site.backend.cluster, "offering": world.site.offering.uuid, "mode": "other"}
        charges.reserve(world.site.state_dir, spent, **where, pass_id="x", now=datetime.now(UTC))
    report = planned.apply()
    assert "the directory has not got all names" in str(report.error)
    assert world.cluster.users_of("a_one") == set(TEAM)
    if not is_away:
        return
    slapd.start()
    assert previews.preview(world.site, Mode.MEMBERSHIP_SYNC).apply().error is None
    assert world.cluster.users_of("a_one") == {*TEAM, "newcid"} - {"cid"}


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
    """Everybody else joins and leaves meanwhile."""
    resource = world.allocate("one")
    world.sync()
    change(world, world.person("cid"), username="newcid")
    clash(world, looker)
    world.leave(world.person("eve"))
    world.join("fay")
    change(world, "fay", uidnumber=5050, primarygroup=6050)
    shown_to_operator = plan_membership(world)
    assert [line for line in shown_to_operator if "cid" in line or "daemon" in line] == []
    inside = {"ann", "bob", "cid", "dee", "fay"}
    for project in (world.waldur.seed.project_uuids[0], ""):
        report = world.sync(project=project)
        assert report.error is None and any(
            "it stays cid until that is settled" in note for note in report.notes
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
    shown_to_operator = "\n".join(plan_membership(world))
    steps = ("begin deletion", "remove member cid from a_one", "deactivate user cid", "complete deletion")
    assert [step for step in steps if step not in shown_to_operator] == []
    report = world.sync()
    assert not report.failed, report.as_json()
    assert world.cluster.users_of("a_one") == set(TEAM) - {"cid"}
    row, cid = world.waldur.people.account(login), looker.user("cid")
    assert row is not None and (row.state, row.username) == (OfferingUserState.DELETED, "newcid")
    assert cid is not None and cid.first("loginShell") == "/usr/sbin/nologin"
    assert "cid" not in physics(looker)[1]
    assert [o.action.verb for o in world.sync().outcomes] == []


def test_nobody_joins_under_a_name_that_somebody_could_not_give_up(world: World, looker: Looker) -> None:
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
        told = "belongs to somebody else; nobody joins an account under this name until that is settled"
        assert any("directory: cid: " in note and told in note for note in report.notes)
        assert (world.members("a_one"), world.members("a_two")) == (set(TEAM), before)
    assert shown(world, "other") == "pending"
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


@pytest.fixture
def without_logins(world: World, slapd: Slapd, tmp_path: Path) -> World:
    """Entries do not say whose they are."""
    nameless = {**DIRECTORY, "waldur_username_attribute": ""}
    return World(world.waldur, tmp_path, backend=raw(slapd, **nameless), username_management_backend="ldap")


@pytest.mark.parametrize("number", [5003, None], ids=["same number", "no number"])
def test_where_nobody_knows_the_old_name_who_may_be_that_person_stays(
    without_logins: World, looker: Looker, number: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Who is somebody else in Waldur leaves."""
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
    # Who is made in the directory has the new name, and nobody the old one.
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
    unknown = "nobody knows whether the entry of cid is of the same person"
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


def test_a_freed_name_that_somebody_else_gets_stays_where_it_may_be_the_old_one(
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
    """Who is somebody else in Waldur leaves, and is deleted."""
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
        assert f"directory: {NOTHING_SHOWN}" in report.notes
        assert [note for note in report.notes if "nobody leaves" in note] == []
        # Of newcid there is no entry at all: nobody in Waldur is called cid, who may be that person.
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
    # Nobody knows who zoe is: it may be the name that fay had.
    other.stray("zoe", "a_one")
    report = previews.preview(other.site, Mode.MEMBERSHIP_SYNC).apply()
    assert "the directory has not got all names" in str(report.error)
    assert "zoe" in other.cluster.users_of("a_one")


def missing_plugin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-in `ldap` cannot be loaded, as where ldap3 is not installed."""
    real = metadata.distribution("waldur-site-cluster")
    about = folder / "waldur_site_cluster-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: waldur-site-cluster\nVersion: 0\n")
    points = [
        "ldap = no_such_module:plugin" if line.startswith("ldap =") else line
        for line in (real.read_text("entry_points.txt") or "").splitlines()
    ]
    (about / "entry_points.txt").write_text("\n".join(points))
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize("fault", ["settings", "plug-in"])
def test_a_directory_that_cannot_be_used_is_told_with_its_cause(
    world: World, slapd: Slapd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Nobody leaves until that is set right: who was renamed has the old name in the directory."""
    world.allocate("one")
    world.sync()
    options = {**DIRECTORY, "username_format": "{first}"} if fault == "settings" else DIRECTORY
    cause = "ldap.username_format" if fault == "settings" else "'ldap' cannot be loaded"
    wrong = World(world.waldur, tmp_path, backend=raw(slapd, **options), username_management_backend="ldap")
    wrong.backend.state = world.cluster
    if fault == "plug-in":
        (tmp_path / "packages").mkdir()
        missing_plugin(tmp_path / "packages", monkeypatch)
    change(wrong, wrong.person("cid"), username="newcid")
    wrong.leave(wrong.person("eve"))
    assert [line for line in plan_membership(wrong) if "remove" in line] == []
    report = wrong.sync()
    (note,) = (note for note in report.notes if note.startswith("nobody leaves an account in this pass: "))
    assert STUCK in note and cause in note and "read" not in note.partition(STUCK)[0]
    assert any(cause in problem for problem in report.problems)
    assert wrong.cluster.users_of("a_one") == {*TEAM, "newcid"}


def test_where_the_provider_makes_the_names_the_directory_keeps_nobody(world: World) -> None:
    """The names in Waldur are then those that whoever writes them there has given."""
    world.allocate("one")
    world.sync()
    options = {**OPTIONS, "username_generation_policy": "service_provider"}
    world.waldur.site.change("offerings", world.waldur.seed.offering_uuid, plugin_options=options)
    world.site.cache.offering = None
    change(world, world.person("cid"), username="newcid")
    world.leave(world.person("eve"))
    report = world.sync()
    assert any("username_generation_policy `service_provider`" in problem for problem in report.problems)
    assert [note for note in report.notes if "nobody leaves" in note] == []
    assert world.cluster.users_of("a_one") == {"ann", "bob", "newcid", "dee"}


def set_policy(world: World, policy: PolicyRules) -> None:
    world.site = replace(world.site, offering=replace(world.site.offering, policy=policy))


def approve_everything(world: World) -> None:
    for held in held_plans.all_held(world.site.state_dir, [world.site.offering]):
        for plan in held.waiting():
            held.approvals.approve(plan.id, expires=datetime.now(UTC) + timedelta(hours=1), by="test")


def plan_membership(world: World) -> list[str]:
    """What the operator is shown that a pass would do."""
    return [action.line() for action in previews.preview(world.site, Mode.MEMBERSHIP_SYNC).allowed.actions]
