# SPDX-License-Identifier: MIT
"""Keys that Waldur wants rotated are refused through the gate: told once, in the journal, and never in a pause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.errors import OfferingPaused, WaldurError
from agent.core.policy import PolicyMode
from agent.run import api_keys
from agent.run.site import Site
from agent.state import journal
from agent.state.journal import Query
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.agent_records import ApiKey
from simulator.world.ages import Age
from simulator.world.seed import Scenario
from tests.membership.world import World

KEY = "ab" * 16


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur(scenario=Scenario(allocations_per_project=1)) as server:
        server.store.age = Age.V8_1
        yield server


@pytest.fixture
def site(waldur: SimulatedWaldur, tmp_path: Path) -> Site:
    world = World(waldur, tmp_path)
    resource = next(iter(waldur.store.resources)).uuid
    waldur.store.api_keys.add(ApiKey(uuid=KEY, resource_uuid=resource, client_id="client", state="Updating"))
    return world.site


def state(waldur: SimulatedWaldur) -> tuple[str, str]:
    key = waldur.store.api_keys[KEY]
    return key.state, key.error_message


def test_a_key_is_refused_and_in_the_journal(waldur: SimulatedWaldur, site: Site) -> None:
    assert api_keys.refuse(site, KEY) == api_keys.REFUSAL
    assert state(waldur) == ("Erred", api_keys.REFUSAL)
    (line,) = [each for each in journal.read(site.state_dir, Query()) if each["cause"] == f"key {KEY}"]
    assert (line["outcome"], line["action"]["action"]) == ("done", "RefuseKey")


def test_a_pause_leaves_the_key_for_later(waldur: SimulatedWaldur, site: Site) -> None:
    paused = replace(site.offering.policy, paused=True, paused_why="by ann")
    with pytest.raises(OfferingPaused, match="the offering is paused by ann: the key waits"):
        api_keys.refuse(replace(site, offering=replace(site.offering, policy=paused)), KEY)
    assert state(waldur) == ("Updating", "")


def test_who_only_observes_leaves_the_key_to_others(waldur: SimulatedWaldur, site: Site) -> None:
    observing = replace(site.offering.policy, mode=PolicyMode.OBSERVE)
    said = api_keys.refuse(replace(site, offering=replace(site.offering, policy=observing)), KEY)
    assert said == "mode observe: the key is left as it is"
    assert state(waldur) == ("Updating", "")


def test_an_outage_asks_for_another_try(waldur: SimulatedWaldur, site: Site) -> None:
    waldur.inject(Fault(method="POST", path="set_erred/", status=503, body="{}", times=None))
    with pytest.raises(WaldurError) as error:
        api_keys.refuse(site, KEY)
    assert error.value.retryable
    assert state(waldur) == ("Updating", "")
