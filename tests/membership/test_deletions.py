# SPDX-License-Identifier: MIT
"""Offering users to their end: Waldur wants an account deleted, the person leaves all accounts, and Waldur is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.actions import RemoveMember, only
from agent.core.directory_actions import (
    BeginDeletion,
    CompleteDeletion,
    DeactivateUser,
    DirectoryAction,
    FailDeletion,
)
from agent.core.errors import BackendError
from agent.core.model import Deletion, OfferingUser, PosixAccount
from agent.core.plans import Outcome
from agent.plan import departures
from agent.plan.departures import Departure
from agent.run.preview.previews import preview
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OfferingUserState
from simulator.world.seed import Scenario
from tests.membership.conftest import WorldFactory
from tests.membership.world import World
from tests.usernames import scripted
from tests.usernames.scripted import Scripted, install

S = OfferingUserState


def leaver(world: World, *, state: OfferingUserState = S.REQUESTED_DELETION) -> str:
    """A member of an account whose deletion Waldur wants, by name; still of the team."""
    world.allocate("one")
    world.settled()
    name = min(world.members("a_one"))
    world.waldur.people.set_account(world.person(name), name, state=state)
    world.waldur.requests.reset()
    return name


def state_of(world: World, name: str) -> str:
    account = world.waldur.people.account(world.person(name))
    assert account is not None
    assert account.username == name
    return account.state.value


def state_of_login(world: World, login: str) -> OfferingUserState:
    account = world.waldur.people.account(login)
    assert account is not None
    return account.state


def steps_of(world: World) -> list[str]:
    """What was sent about offering users since the last reset."""
    counts = world.waldur.request_counts()
    return sorted(
        line.rpartition("/marketplace-offering-users/")[2] or line
        for line in counts
        if line.startswith("POST") and "offering-users" in line
    )


def test_a_person_leaves_all_accounts_and_keeps_the_name(world: World) -> None:
    name = leaver(world)
    looked_at = preview(world.site, Mode.MEMBERSHIP_SYNC)
    assert [action.verb for action in looked_at.allowed if name in action.line()] == [
        "begin deletion",
        "remove member",
        "complete deletion",
    ]
    report = world.sync()
    assert not report.failed, report.as_json()
    order = [o.action.verb for o in report.outcomes if name in o.action.line()]
    assert order == ["begin deletion", "remove member", "complete deletion"]
    assert name not in world.members("a_one")
    assert state_of(world, name) == "Deleted"
    # Still of the team, for Waldur does not take people from projects: nobody comes back by that.
    world.in_step()
    assert name not in world.members("a_one")
    world.waldur.people.set_account(world.person(name), name, state=S.OK)
    world.sync()
    assert name in world.members("a_one")


def test_whom_waldur_takes_back_before_the_first_step_keeps_everything(world: World) -> None:
    name = leaver(world)
    login, reads = world.person(name), 0

    def take_back(call: str) -> bool:
        nonlocal reads
        reads += call == "observe"
        if reads == 2:  # the last read before the plan is carried out
            world.waldur.people.set_account(login, name, state=S.OK)
        return False

    world.backend.outage = take_back
    report = world.sync()
    assert reads == 2
    assert name in world.members("a_one")
    assert state_of(world, name) == "OK"
    assert not report.failed
    world.in_step()


def test_a_deletion_that_was_begun_goes_on_and_whoever_is_in_no_account_is_deleted_at_once(
    world: World,
) -> None:
    name = leaver(world, state=S.DELETING)
    world.waldur.people.add_member(world.waldur.seed.project_uuids[1], "nina", account="")
    world.waldur.people.set_account("nina", "", state=S.REQUESTED_DELETION)
    world.sync()
    row = world.waldur.people.account("nina")
    assert row is not None
    assert (state_of(world, name), row.state) == ("Deleted", S.DELETED)
    assert name not in world.members("a_one")


def test_nothing_begins_where_the_site_removes_nobody(make_world: WorldFactory) -> None:
    world = make_world(policy={"mode": "upsert-only"})
    name = leaver(world)
    world.sync()
    assert (steps_of(world), state_of(world, name)) == ([], "Requested deletion")
    assert name in world.members("a_one")


def test_a_pass_over_one_resource_leaves_it_to_the_next_whole_one(world: World) -> None:
    name = leaver(world)
    (uuid,) = (r.uuid for r in world.waldur.site.resources() if r.backend_id == "a_one")
    world.sync(resource=uuid)
    assert (steps_of(world), state_of(world, name)) == ([], "Requested deletion")
    assert name in world.members("a_one")


def test_who_cannot_be_removed_is_told_once_and_tried_again(world: World) -> None:
    name = leaver(world)
    world.backend.refuses = lambda action: isinstance(action, RemoveMember) and action.user == name
    world.sync()
    assert state_of(world, name) == "Error deleting"
    world.waldur.requests.reset()
    world.sync()
    assert (steps_of(world), state_of(world, name)) == ([], "Error deleting")
    world.backend.refuses = lambda _: False
    world.sync()
    assert state_of(world, name) == "Deleted"


def test_an_outage_in_the_middle_deletes_nobody(world: World) -> None:
    name = leaver(world)
    world.backend.outage = lambda call: call == "apply"
    world.sync()
    assert state_of(world, name) == "Deleting"
    assert name in world.members("a_one")
    world.backend.outage = lambda _: False
    world.sync()
    assert state_of(world, name) == "Deleted"


def test_nobody_is_ended_while_the_cluster_is_not_read(world: World) -> None:
    """An order is at work on the only resource: its account is left alone, and the person may be in it."""
    name = leaver(world, state=S.DELETING)
    with world.waldur.store.lock:
        (resource,) = [row.uuid for row in world.waldur.store.resources]
    world.change(resource, state="Updating")
    world.sync()
    assert steps_of(world) == []
    assert state_of(world, name) == "Deleting"


def test_nothing_begins_for_whom_the_only_account_is_left_as_it_is(world: World) -> None:
    """The account of the only resource is being terminated. As soon as it is not, the person leaves."""
    name = leaver(world)
    (resource,) = world.waldur.site.resources()
    order = world.waldur.orders.place_terminate(resource.uuid)
    assert "begin deletion" not in [
        action.verb for action in preview(world.site, Mode.MEMBERSHIP_SYNC).allowed
    ]
    world.sync()
    assert (steps_of(world), state_of(world, name)) == ([], "Requested deletion")
    assert name in world.members("a_one")
    world.waldur.site.change("orders", order, state="canceled")
    world.sync()
    assert state_of(world, name) == "Deleted"
    assert name not in world.members("a_one")


def test_who_is_deleted_in_waldur_and_in_an_account_all_the_same_leaves_it(world: World) -> None:
    name = leaver(world, state=S.DELETED)
    assert [a.verb for a in preview(world.site, Mode.MEMBERSHIP_SYNC).allowed if name in a.line()] == [
        "remove member"
    ]
    world.sync()
    assert name not in world.members("a_one")
    assert (steps_of(world), state_of(world, name)) == ([], "Deleted")
    world.in_step()


@pytest.mark.parametrize("age", ["2024", "8.0"])
def test_older_servers(age: str, tmp_path: Path) -> None:
    """A server of 2024 has no states and is not asked; 8.0 has them all."""
    with SimulatedWaldur(age, scenario=Scenario(members_per_project=2)) as waldur:
        world = World(waldur, tmp_path)
        name = leaver(world)
        world.sync()
        assert (name in world.members("a_one")) == (age == "2024")
        assert bool(steps_of(world)) == (age == "8.0")


def test_a_server_without_these_calls_is_asked_once(tmp_path: Path) -> None:
    with SimulatedWaldur(scenario=Scenario(members_per_project=2)) as waldur:
        world = World(waldur, tmp_path)
        name = leaver(world)
        waldur.faults.add(Fault(method="POST", path="set_deleting", status=404, times=None))
        world.sync()
        assert name in world.members("a_one")
        assert not world.site.client.if_supported(BeginDeletion.feature)
        world.in_step()


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
def test_a_name_that_somebody_has_at_another_offering_stays_in_the_directory(
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
def test_whom_the_policy_keeps_in_the_directory_is_shown_as_kept(
    make_world: WorldFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: dict[str, object]
) -> None:
    """In no account of the offering: the plan ends no deletion that the pass does not end."""
    install(tmp_path, monkeypatch)
    directory = Directory()
    scripted.plugin.backend = directory
    world = make_world(username_management_backend="scripted", policy=policy)
    world.allocate("one")
    world.waldur.people.add_member(world.waldur.seed.project_uuids[1], "nina", account="nina")
    world.settled()
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
def test_nothing_begins_for_whom_the_directory_may_not_let_go(
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
    world.settled()
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
    world.settled()
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
    world.settled()
    world.waldur.people.set_account("ninaold", "nina", state=S.REQUESTED_DELETION)
    world.sync()
    assert state_of_login(world, "ninaold") is S.DELETED
    assert ("nina" in world.members("a_one"), "nina" in world.members("a_two")) == (False, True)
    world.in_step()


@pytest.mark.parametrize("refused", [False, True])
def test_the_directory_lets_go_of_a_person_before_waldur_is_told(
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
    """How many that is of all is counted on the cluster, of which the directory itself shows nobody."""
    install(tmp_path, monkeypatch)
    directory = Directory()
    scripted.plugin.backend = directory
    world = make_world(username_management_backend="scripted")
    for number in range(5):
        world.join(f"more{number}")
    world.allocate("one")
    world.settled()
    world.leave("more0")
    assert not world.sync().held
    world.waldur.people.set_account("more1", "more1", state=S.REQUESTED_DELETION)
    report = world.sync()
    assert [held.reason for held in report.held] == []
    assert [action.line() for action in directory.applied] == ["deactivate user more1"]
    assert state_of(world, "more1") == "Deleted"


ANN = OfferingUser("o1", "u1", "ann", Deletion.DELETING)
FAULT = BackendError("no")


@pytest.mark.parametrize(
    ("state", "departure", "expected"),
    [
        (Deletion.DELETING, {}, [CompleteDeletion]),
        (Deletion.DELETING, {"is_released": True}, [DeactivateUser, CompleteDeletion]),
        (Deletion.DELETING, {"inside": frozenset({"a"})}, []),
        (Deletion.DELETING, {"inside": frozenset({"a"}), "fault": FAULT}, [FailDeletion]),
        (Deletion.FAILED, {"inside": frozenset({"a"}), "fault": FAULT}, []),
        (Deletion.FAILED, {}, [BeginDeletion, CompleteDeletion]),
    ],
)
def test_what_ends_a_deletion(
    state: Deletion, departure: dict[str, object], expected: list[type[object]]
) -> None:
    user = OfferingUser("o1", "u1", "ann", state, waldur_username="ann@w", posix=PosixAccount(5001, 6001))
    found = list(departures.closing([Departure(user, **departure)]))  # type: ignore[arg-type]
    assert [type(action) for action in found] == expected
    assert all((each.login, each.uid) == ("ann@w", 5001) for each in only(DeactivateUser, found))
