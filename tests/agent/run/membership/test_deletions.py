# SPDX-License-Identifier: MIT
"""Offering users to their end: Waldur wants an account deleted, the person leaves all accounts, and Waldur gets the
report.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.actions import RemoveMember, only
from agent.core.directory_actions import (
    BeginDeletion,
    CompleteDeletion,
    DeactivateUser,
    FailDeletion,
)
from agent.core.errors import BackendError
from agent.core.model import Deletion, OfferingUser, PosixAccount
from agent.plan import departures
from agent.plan.departures import Departure
from agent.run.preview.previews import preview
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.membership.conftest import WorldFactory
from tests.agent.run.membership.leavers import S, leaver, state_of, steps_of
from tests.world import World


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
    # Still of the team, for Waldur does not take people from projects: no member comes back by that.
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


def test_nothing_begins_where_the_site_removes_no_members(make_world: WorldFactory) -> None:
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


def test_who_cannot_be_removed_is_reported_once_and_tried_again(world: World) -> None:
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


def test_an_outage_in_the_middle_deletes_no_person(world: World) -> None:
    name = leaver(world)
    world.backend.outage = lambda call: call == "apply"
    world.sync()
    assert state_of(world, name) == "Deleting"
    assert name in world.members("a_one")
    world.backend.outage = lambda _: False
    world.sync()
    assert state_of(world, name) == "Deleted"


def test_no_person_is_ended_while_the_cluster_is_not_read(world: World) -> None:
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
