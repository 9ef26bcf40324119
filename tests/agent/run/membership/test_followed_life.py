# SPDX-License-Identifier: MIT
"""A person's life in a real OpenLDAP that follows Waldur: numbers, groups, a renaming, something to do, the end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.errors import BackendUnavailable, SiteAgentError, StateError
from agent.core.policy import Charge, Cost
from agent.run import passes
from agent.run.membership import planning
from agent.run.people.naming import AWAY, STUCK, names_unknown
from agent.run.preview import previews
from agent.run.waldur_facts import confirm_people
from agent.state import charges
from rig.slapd import Slapd
from simulator.world.records import OfferingUserState
from tests.agent.run.membership.followed_people import (
    DIRECTORY,
    OPTIONS,
    OTHERS,
    TEAM,
    change,
    entry,
    in_waldur,
    looker,
    physics,
    plan_membership,
    set_policy,
    world,
)
from tests.backends.usernames.conftest import Looker, raw
from tests.one_mode import planned_members
from tests.world import World, approve_all

__all__ = ["looker", "world"]


def test_from_the_first_pass_to_the_last(world: World, looker: Looker) -> None:
    login = world.person("ann")
    world.allocate("one")
    begins(world, looker, login)
    is_linked_anew(world, login)
    is_renamed(world, looker, login)
    is_deleted(world, looker, login)
    assert [o.action.verb for o in world.sync().outcomes] == []


def test_an_idle_pass_asks_the_directory_for_the_same_however_many_allocations_there_are(
    world: World, slapd: Slapd
) -> None:
    """Four for people (names and numbers, logins, and groups in the way of bob and of those without numbers), at the
    beginning and again for the groups of projects, which are five; two for the groups of accounts.
    """

    def asked() -> tuple[int, ...]:
        return tuple(map(slapd.operations, (" SRCH base=", " method=128")))

    counts = []
    for names in (["one"], ["two", "three"]):
        world.allocate_all(*names)
        for _ in range(2):
            world.sync()
        before = asked()
        world.in_step()
        counts.append([now - then for now, then in zip(asked(), before, strict=True)])
    assert counts == [[15, 4]] * 2, "searches and connections"


def begins(world: World, looker: Looker, login: str) -> None:
    """Ann gets what Waldur has; whose entry does not agree, bob, gets no rights by a group, and keeps the account."""
    report = world.sync()
    attributes = ("uidNumber", "gidNumber", "homeDirectory", "loginShell", "employeeNumber")
    assert entry(looker, "ann", *attributes) == ["5001", "6001", "/data/ann", "/bin/zsh", login]
    assert any("bob: it has 7777:7777 there, and 5002:6002 in Waldur" in note for note in report.notes)
    assert entry(looker, "bob", "uidNumber") == ["7777"]
    assert physics(looker) == ("20001", ["ann", "cid", "dee", "eve"])
    assert world.members("a_one") == set(TEAM)
    world.sync()
    assert in_waldur(world, login) == "synced"


def is_linked_anew(world: World, login: str) -> None:
    """There is something for her to do in Waldur, and she does it."""
    change(world, login, runtime_state="Pending account linking")
    world.sync()
    assert in_waldur(world, login) == "pending"
    change(world, login, runtime_state="Active")


def is_renamed(world: World, looker: Looker, login: str) -> None:
    """To anna: with the same number, in the accounts and in all groups."""
    change(world, login, username="anna")
    world.sync()
    allocation = looker.group("a_one")
    assert looker.user("ann") is None
    assert entry(looker, "anna", "uidNumber") == ["5001"]
    assert world.members("a_one") == {"anna", *OTHERS}
    assert allocation is not None and sorted(allocation.all("memberUid")) == ["anna", *OTHERS]
    assert physics(looker)[1] == ["anna", "cid", "dee", "eve"]
    assert in_waldur(world, login) == "synced"


def is_deleted(world: World, looker: Looker, login: str) -> None:
    """Step by step; the entry stays, and nobody can log in with it."""
    world.waldur.people.set_account(login, "anna", state=OfferingUserState.REQUESTED_DELETION)
    done = world.sync()
    steps = ["begin deletion", "remove member", "deactivate user", "complete deletion"]
    verbs = [o.action.verb for o in done.outcomes if o.done and "anna" in o.action.line()]
    assert [verb for verb in verbs if verb in steps] == steps
    row = world.waldur.people.account(login)
    assert row is not None and row.state is OfferingUserState.DELETED
    assert world.members("a_one") == set(OTHERS)
    assert physics(looker)[1] == ["cid", "dee", "eve"]
    assert entry(looker, "anna", "loginShell", "homeDirectory") == ["/usr/sbin/nologin", "/data/ann"]


def test_who_is_not_renamed_yet_keeps_the_accounts(world: World, looker: Looker) -> None:
    """Else they would be unusable: the old name has none, and the new one cannot log in."""
    world.allocate("one")
    world.sync()
    unlimited = world.site.offering.policy
    set_policy(world, replace(unlimited, max_removed_members=1))
    for name in ("cid", "dee"):
        change(world, world.person(name), username=f"new{name}")
    # Teams that lose a member are read again from Waldur.
    world.leave(world.person("eve"))
    printed = plan_membership(world)
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
    assert [line for line in printed if "new" in line] == []
    set_policy(world, replace(unlimited, max_removed_percent=100))
    approve_all(world.site)
    report = world.sync()
    assert (report.error, report.held) == (None, ())
    assert world.cluster.users_of("a_one") == {"ann", "bob", "newcid", "newdee"}
    assert looker.user("newcid") and not looker.user("cid")


def test_who_is_renamed_while_the_directory_is_away_keeps_the_accounts(
    world: World, looker: Looker, slapd: Slapd
) -> None:
    """It is unknown then which name the directory has. Who has left keeps theirs that long, too."""
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
            note
            for note in report.notes
            if note.startswith("no member is removed from an account in this pass: ")
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
def test_why_no_member_is_removed_is_noted_with_its_cause(world: World, error: SiteAgentError) -> None:
    """It need not be the directory that is at fault."""
    facts = planned_members(world.site).facts.waldur.offering
    note = names_unknown(world.site, facts, error)
    assert str(error) in note and not any(word in note for word in ("read", "cannot"))


def test_where_the_directory_makes_the_names_its_outage_keeps_no_leaver(
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
def test_a_directory_that_cannot_be_used_is_noted_with_its_cause(
    world: World, slapd: Slapd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """No member is removed until that is set right: who was renamed has the old name in the directory."""
    world.allocate("one")
    world.sync()
    options = {**DIRECTORY, "username_format": "{first}"} if fault == "settings" else DIRECTORY
    cause = "ldap.username_format" if fault == "settings" else "'ldap' is installed but cannot be loaded"
    wrong = World(world.waldur, tmp_path, backend=raw(slapd, **options), username_management_backend="ldap")
    wrong.backend.state = world.cluster
    if fault == "plug-in":
        (tmp_path / "packages").mkdir()
        missing_plugin(tmp_path / "packages", monkeypatch)
    change(wrong, wrong.person("cid"), username="newcid")
    wrong.leave(wrong.person("eve"))
    assert [line for line in plan_membership(wrong) if "remove" in line] == []
    report = wrong.sync()
    (note,) = (
        note
        for note in report.notes
        if note.startswith("no member is removed from an account in this pass: ")
    )
    assert STUCK in note and cause in note and "read" not in note.partition(STUCK)[0]
    assert any(cause in problem for problem in report.problems)
    assert wrong.cluster.users_of("a_one") == {*TEAM, "newcid"}


def test_where_the_provider_makes_the_names_the_directory_keeps_no_leaver(world: World) -> None:
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
    assert [note for note in report.notes if "no member is removed" in note] == []
    assert world.cluster.users_of("a_one") == {"ann", "bob", "newcid", "dee"}
