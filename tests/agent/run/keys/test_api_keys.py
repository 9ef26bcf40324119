# SPDX-License-Identifier: MIT
"""Keys of resources that no backend here makes: what becomes of each is reported once, by events and by polls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.errors import OfferingPaused, WaldurError
from agent.core.model import KeyCommand
from agent.core.policy import PolicyMode
from agent.plan.api_keys import actions
from agent.run.keys import api_keys
from agent.run.preview.previews import preview
from agent.run.site import Site
from agent.state import journal
from agent.state.journal import Query
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.agent_records import ApiKey
from simulator.world.seed import Scenario
from tests.world import World

pytestmark = pytest.mark.events

KEY, OTHER = "ab" * 16, "cd" * 16
REFUSED = "The site's cluster has no keys: Waldur asked to rotate this one, which cannot be carried out."


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur("8.1", scenario=Scenario(allocations_per_project=1)) as server:
        yield server


@pytest.fixture
def world(waldur: SimulatedWaldur, tmp_path: Path) -> World:
    return World(waldur, tmp_path)


@pytest.fixture
def site(world: World) -> Site:
    wanted(world.waldur, KEY)
    return world.site


def wanted(waldur: SimulatedWaldur, uuid: str, *, state: str = "Updating", action: str = "rotate") -> None:
    resource = next(iter(waldur.store.resources)).uuid
    key = ApiKey(uuid=uuid, resource_uuid=resource, client_id="client", state=state, pending_action=action)
    waldur.store.api_keys.add(key)


def state(waldur: SimulatedWaldur, uuid: str = KEY) -> tuple[str, str]:
    key = waldur.store.api_keys[uuid]
    return key.state, key.error_message


def test_a_key_is_refused_and_in_the_journal(waldur: SimulatedWaldur, site: Site) -> None:
    assert api_keys.answer(site, KEY) == f"refuse key {KEY}: {REFUSED}"
    assert state(waldur) == ("Erred", REFUSED)
    (line,) = [each for each in journal.read(site.state_dir, Query()) if each["cause"] == f"key {KEY}"]
    assert (line["outcome"], line["action"]["action"]) == ("done", "RefuseKey")
    assert (
        api_keys.answer(site, KEY)
        == "nothing is done about the key: Waldur wants nothing of it, or its resource has no account yet"
    )


def test_a_key_that_shall_go_is_gone(waldur: SimulatedWaldur, site: Site) -> None:
    wanted(waldur, OTHER, state="Deleting", action="")
    assert api_keys.answer(site, OTHER) == f"confirm deletion of key {OTHER}"
    assert state(waldur, OTHER) == ("Deleted", "")


def test_a_poll_finds_keys_whose_event_was_lost_and_asks_only_where_there_are_keys(world: World) -> None:
    world.fill()
    world.sync()
    world.waldur.requests.reset()
    world.sync()
    idle = world.waldur.request_counts()
    assert not [line for line in idle if "api-keys" in line]
    wanted(world.waldur, KEY, state="Creating", action="create")
    wanted(world.waldur, OTHER, state="Deleting", action="delete")
    planned = [action.verb for action in preview(world.site, Mode.MEMBERSHIP_SYNC).allowed]
    assert sorted(planned) == ["confirm deletion of key", "refuse key"]
    assert not world.sync().failed
    assert (state(world.waldur)[0], state(world.waldur, OTHER)[0]) == ("Erred", "Deleted")
    world.in_step()


def test_an_outage_of_the_listing_costs_the_pass_nothing_else(world: World) -> None:
    world.fill()
    world.sync()
    wanted(world.waldur, KEY)
    world.waldur.inject(Fault(path="marketplace-resource-api-keys", status=503, body="{}", times=None))
    report = world.sync()
    assert report.error is None
    assert [problem.partition(":")[0] for problem in report.problems] == ["keys of resources"]
    assert report.later is not None


def test_a_pause_leaves_the_key_for_later(waldur: SimulatedWaldur, site: Site) -> None:
    paused = replace(site.offering.policy, paused=True, paused_why="by ann")
    with pytest.raises(OfferingPaused, match="the offering is paused by ann: the key waits"):
        api_keys.answer(replace(site, offering=replace(site.offering, policy=paused)), KEY)
    assert state(waldur) == ("Updating", "")


def test_who_only_observes_leaves_the_key_to_others(waldur: SimulatedWaldur, site: Site) -> None:
    observing = replace(site.offering.policy, mode=PolicyMode.OBSERVE)
    said = api_keys.answer(replace(site, offering=replace(site.offering, policy=observing)), KEY)
    assert said == "mode observe: the key is left as it is"
    assert state(waldur) == ("Updating", "")


def test_an_outage_asks_for_another_try(waldur: SimulatedWaldur, site: Site) -> None:
    waldur.inject(Fault(method="POST", path="set_erred/", status=503, body="{}", times=None))
    with pytest.raises(WaldurError) as error:
        api_keys.answer(site, KEY)
    assert error.value.retryable
    assert state(waldur) == ("Updating", "")


@pytest.mark.parametrize("makes_keys", [True, False])
def test_a_key_whose_pending_action_is_unknown_is_left_as_it_is(makes_keys: bool) -> None:
    """A rotation would end the secret that is in use."""
    unsaid = KeyCommand(uuid="k", resource_uuid="r", state="Updating", action="", client_id="c")
    assert list(actions([unsaid], {"r": "a"}, makes_keys=makes_keys)) == []
