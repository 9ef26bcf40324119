# SPDX-License-Identifier: MIT
"""The optional modes of a membership pass: names, endings and groups are planned; a directory that is away is noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.directory_actions import AssignUsername, BeginUsername
from agent.core.errors import BackendError, BackendUnavailable
from agent.run.preview import drift
from agent.run.preview import files as plan_files
from agent.run.preview.previews import Preview, preview
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OfferingUserState, ResourceState
from tests.agent.run.membership.conftest import WorldFactory
from tests.agent.run.people.scripted import Scripted, install
from tests.world import World

MODE = Mode.MEMBERSHIP_SYNC
NAMES = {
    "username_generation_policy": "service_provider",
    "service_provider_can_create_offering_user": True,
}


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    return install(tmp_path, monkeypatch)


@pytest.fixture
def named(waldur: SimulatedWaldur, scripted: Scripted, make_world: WorldFactory) -> World:
    """A world with an allocation in step, and one more person in its team who has no name yet."""
    waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options=NAMES)
    world = make_world(username_management_backend="scripted")
    world.allocate("one")
    world.converge()
    world.join("newcomer", account="")
    waldur.people.set_account("newcomer", "", state=OfferingUserState.REQUESTED)
    return world


def lines_of(plan: Preview) -> list[str]:
    return [action.verb for action in plan.allowed]


def test_names_are_in_the_plan_and_carried_out_with_it(
    named: World, make_world: WorldFactory, tmp_path: Path
) -> None:
    cluster = named.cluster
    named = make_world(username_management_backend="template")
    named.backend.state = cluster
    named.leave(sorted(named.members("a_one"))[0])
    looked_at = preview(named.site, MODE)
    assert {"begin username", "assign username", "remove member"} <= set(lines_of(looked_at))
    assert "who gets a username now joins the accounts in the next pass" in looked_at.notes
    (name,) = {a.username for a in looked_at.allowed if isinstance(a, AssignUsername)}
    assert all("newcomer" in a.reason for a in looked_at.allowed if isinstance(a, BeginUsername))
    plan_files.write(tmp_path / "plan", named.site.offering.uuid, MODE, looked_at)
    again = preview(named.site, MODE)
    plan_files.check(plan_files.read(tmp_path / "plan"), again)
    report = again.apply()
    assert not report.failed, report.as_json()
    done = {outcome.action.verb for outcome in report.outcomes if outcome.done}
    assert {"begin username", "assign username", "remove member"} <= done
    row = named.waldur.people.account("newcomer")
    assert row is not None
    assert (row.state.value, row.username) == ("OK", name)
    assert name not in named.members("a_one")
    named.converge()
    assert name in named.members("a_one")
    assert (lines_of(preview(named.site, MODE)), drift.look(named.site, MODE).differences) == ([], 0)


def test_an_erred_resource_that_agrees_is_planned_to_be_marked_ok(world: World) -> None:
    one = world.allocate("one")
    world.converge()
    assert lines_of(preview(world.site, MODE)) == []
    world.change(one, state=ResourceState.ERRED)
    assert lines_of(preview(world.site, MODE)) == ["mark resource OK"]
    assert drift.look(world.site, MODE).kinds == {"mark resource OK": 1}
    world.converge()
    assert lines_of(preview(world.site, MODE)) == []


@pytest.mark.parametrize(
    "error", [BackendUnavailable("the directory is away"), BackendError("the directory says no")]
)
def test_a_directory_that_is_away_fails_the_pass_and_not_the_plan(
    named: World, scripted: Scripted, error: BackendError
) -> None:
    scripted.opening = error
    assert f"usernames cannot be planned: {error}" in preview(named.site, MODE).notes
    report = named.sync()
    assert report.problems == [f"usernames: {error}"]
    assert (report.failed, report.error, report.in_step) == (True, None, 1)


def test_in_a_pause_no_names_are_foreseen(
    waldur: SimulatedWaldur, named: World, make_world: WorldFactory
) -> None:
    paused = make_world(username_management_backend="scripted", policy={"paused": True})
    assert "assign username" not in lines_of(preview(paused.site, MODE))
