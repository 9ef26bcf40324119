# SPDX-License-Identifier: MIT
"""Offering users to their end where a directory has them: it releases a person before Waldur gets the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.directory_actions import (
    DirectoryAction,
)
from agent.core.errors import BackendError
from agent.core.plans import Outcome
from agent.run.preview.previews import preview
from tests.agent.run.membership.conftest import WorldFactory
from tests.agent.run.membership.leavers import S, leaver, state_of, state_of_login, steps_of
from tests.agent.run.people import scripted
from tests.agent.run.people.scripted import Scripted, install
from tests.world import World


class Directory(Scripted):
    """A directory that says what it was asked to release."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []
        self.refusal: BackendError | None = None

    def require_room(self) -> None:
        return None

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        self.applied += actions
        return [Outcome(action, self.refusal) for action in actions]


@pytest.mark.parametrize("is_stranger", [False, True])
def test_a_name_that_a_person_has_at_another_offering_stays_in_the_directory(
    make_world: WorldFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stranger: bool
) -> None:
    """The same person, or another one who has the same name there."""
    install(tmp_path, monkeypatch)
    directory = Directory()
    scripted.plugin.backend = directory
    world = make_world(username_management_backend="scripted")
    name = leaver(world)
    store = world.waldur.store
    with store.lock:
        row = next(each for each in store.offering_users if each.username == name)
        other = replace(store.offerings[row.offering_uuid], uuid=store.uuids.new())
        store.offerings.add(other)
        elsewhere = {"uuid": store.uuids.new(), "offering_uuid": other.uuid, "state": S.OK}
        if is_stranger:
            elsewhere["user_uuid"] = next(user.uuid for user in store.users if user.uuid != row.user_uuid)
        store.offering_users.add(replace(row, **elsewhere))
    world.sync()
    with store.lock:
        assert store.offering_users[row.uuid].state is S.DELETED
    assert directory.applied == []


@pytest.mark.parametrize("policy", [{"mode": "upsert-only"}, {"protected_users": ["nina"]}])
def test_whom_the_policy_keeps_in_the_directory_is_listed_as_kept(
    make_world: WorldFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: dict[str, object]
) -> None:
    """In no account of the offering: the plan ends no deletion that the pass does not end."""
    install(tmp_path, monkeypatch)
    directory = Directory()
    scripted.plugin.backend = directory
    world = make_world(username_management_backend="scripted", policy=policy)
    world.allocate("one")
    world.waldur.people.add_member(world.waldur.seed.project_uuids[1], "nina", account="nina")
    world.converge()
    world.waldur.people.set_account("nina", "nina", state=S.DELETING)
    looked_at = preview(world.site, Mode.MEMBERSHIP_SYNC)
    assert [a.verb for a in looked_at.allowed if "nina" in a.line()] == []
    assert [each.action.verb for each in looked_at.refused] == ["deactivate user"]
    report = world.sync()
    assert [each.action for each in report.refused] == [each.action for each in looked_at.refused]
    assert (directory.applied, state_of(world, "nina")) == ([], "Deleting")


@pytest.mark.parametrize(
    "policy",
    [
        {"mode": "upsert-only"},
        {"protected_users": ["nina"]},
        {"ignore_users": ["n*"]},
        {"max_removed_members": 0},
    ],
    ids=["mode", "protected", "ignored", "held"],
)
def test_nothing_begins_for_whom_the_directory_may_not_release(
    make_world: WorldFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: dict[str, object]
) -> None:
    """A deletion that has begun cannot be taken back in Waldur. Who is in no account of the offering has nothing else
    that could end.
    """
    install(tmp_path, monkeypatch)
    directory = Directory()
    scripted.plugin.backend = directory
    world = make_world(username_management_backend="scripted", policy=policy)
    world.allocate("one")
    world.waldur.people.add_member(world.waldur.seed.project_uuids[1], "nina", account="nina")
    world.converge()
    world.waldur.people.set_account("nina", "nina", state=S.REQUESTED_DELETION)
    looked_at = preview(world.site, Mode.MEMBERSHIP_SYNC)
    assert [a.verb for a in looked_at.allowed if "nina" in a.line()] == []
    world.waldur.requests.reset()
    for _ in range(2):
        report = world.sync()
        assert len(report.refused) + len(report.held) == 1
        assert (steps_of(world), directory.applied) == ([], [])
        assert state_of(world, "nina") == "Requested deletion"
    # The person may still change their mind.
    world.waldur.people.set_account("nina", "nina", state=S.OK)
    assert world.sync().refused == ()


def test_a_plan_counts_who_leaves_an_account_before_the_directory_lets_go(
    make_world: WorldFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One removal has room; that of the entry is a second one, and held in the plan as in the pass."""
    install(tmp_path, monkeypatch)
    scripted.plugin.backend = Directory()
    world = make_world(username_management_backend="scripted", policy={"max_removed_members": 1})
    name = leaver(world)
    looked_at = preview(world.site, Mode.MEMBERSHIP_SYNC)
    verbs = [action.verb for action in looked_at.allowed if name in action.line()]
    assert verbs == ["begin deletion", "remove member"]
    (held,) = looked_at.held
    assert "deactivate user" in [action.verb for action in held.actions]
    report = world.sync()
    assert [plan.id for plan in report.held] == [held.id]
    assert name not in world.members("a_one")


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize("is_restricted", [False, True])
def test_of_two_logins_with_one_name_the_one_that_stays_keeps_everything(
    make_world: WorldFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_inside: bool,
    is_restricted: bool,
) -> None:
    """Both are in the team, or both in the team of a project that has no account."""
    install(tmp_path, monkeypatch)
    directory = Directory()
    scripted.plugin.backend = directory
    world = make_world(username_management_backend="scripted")
    world.allocate("one")
    project = world.waldur.seed.project_uuids[0 if is_inside else 1]
    for login in ("ninaold", "ninanew"):
        world.waldur.people.add_member(project, login, account="nina")
    world.converge()
    live = world.waldur.people.account("ninanew")
    assert live is not None
    if is_restricted:
        world.waldur.site.change("offering_users", live.uuid, is_restricted=True)
    world.waldur.people.set_account("ninaold", "nina", state=S.REQUESTED_DELETION)
    looked_at = preview(world.site, Mode.MEMBERSHIP_SYNC)
    assert [a.verb for a in looked_at.allowed if "nina" in a.line()] == [
        "begin deletion",
        "complete deletion",
    ]
    world.sync()
    assert (state_of_login(world, "ninaold"), state_of_login(world, "ninanew")) == (S.DELETED, S.OK)
    assert directory.applied == []
    assert ("nina" in world.members("a_one")) == is_inside
    world.in_step()


def test_a_leaver_leaves_where_the_other_login_of_the_same_name_does_not_belong(world: World) -> None:
    world.allocate("one")
    world.allocate("two", project=1)
    both = world.waldur.seed.project_uuids
    world.waldur.people.add_member(both[0], "ninaold", account="nina")
    world.waldur.people.add_member(both[1], "ninaold", account="nina")
    world.waldur.people.add_member(both[1], "ninanew", account="Nina")
    world.converge()
    world.waldur.people.set_account("ninaold", "nina", state=S.REQUESTED_DELETION)
    world.sync()
    assert state_of_login(world, "ninaold") is S.DELETED
    assert ("nina" in world.members("a_one"), "nina" in world.members("a_two")) == (False, True)
    world.in_step()


@pytest.mark.parametrize("refused", [False, True])
def test_the_directory_lets_go_of_a_person_before_waldur_gets_the_report(
    make_world: WorldFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    install(tmp_path, monkeypatch)
    directory = Directory()
    scripted.plugin.backend = directory
    world = make_world(username_management_backend="scripted")
    name = leaver(world)
    if refused:
        directory.refusal = BackendError("the entry is protected")
    world.sync()
    assert [action.line() for action in directory.applied] == [f"deactivate user {name}"]
    assert state_of(world, name) == ("Error deleting" if refused else "Deleted")


def test_the_directory_lets_go_of_the_third_who_leaves_within_an_hour(
    make_world: WorldFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many that is of all is counted on the cluster, of which the directory itself lists no user."""
    install(tmp_path, monkeypatch)
    directory = Directory()
    scripted.plugin.backend = directory
    world = make_world(username_management_backend="scripted")
    for number in range(5):
        world.join(f"more{number}")
    world.allocate("one")
    world.converge()
    world.leave("more0")
    assert not world.sync().held
    world.waldur.people.set_account("more1", "more1", state=S.REQUESTED_DELETION)
    report = world.sync()
    assert [held.reason for held in report.held] == []
    assert [action.line() for action in directory.applied] == ["deactivate user more1"]
    assert state_of(world, "more1") == "Deleted"
