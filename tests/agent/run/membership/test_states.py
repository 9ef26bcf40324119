# SPDX-License-Identifier: MIT
"""Paused, downscaled and free again: by QoS, or by taking no new jobs where QoS are enforced."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from agent.core.model import Part
from tests.agent.run.membership.conftest import WorldFactory
from tests.world import World

BY_QOS = {"qos_default": "normal", "qos_downscaled": "slow", "qos_paused": "stop"}
ENFORCED = {"qos_enforcement_enabled": True, "enforce_offering_qos": True}


def qos(world: World, account: str = "a_one") -> tuple[set[str], str]:
    standing = world.cluster.accounts[account]
    return set(standing.qos), standing.default_qos


@pytest.fixture
def by_qos(make_world: WorldFactory) -> World:
    return make_world(backend=BY_QOS)


@pytest.fixture
def enforced(make_world: WorldFactory) -> World:
    return make_world(backend=ENFORCED)


def test_a_resource_goes_through_its_states_by_qos_and_comes_back(by_qos: World) -> None:
    resource = by_qos.allocate("one")
    by_qos.converge()
    assert qos(by_qos) == (set(), "")
    for flags, wanted in [
        ({"downscaled": True}, "slow"),
        ({"downscaled": True, "paused": True}, "stop"),
        ({"downscaled": True, "paused": False}, "slow"),
        ({"downscaled": False, "paused": False}, "normal"),
    ]:
        by_qos.change(resource, **flags)
        assert not by_qos.sync().failed
        assert qos(by_qos) == ({wanted}, wanted)
        assert by_qos.resource(resource).backend_metadata["qos"] == wanted
        by_qos.in_step()


def test_the_qos_that_a_site_gave_an_account_are_left_alone_while_it_is_free(by_qos: World) -> None:
    by_qos.allocate("one")
    by_qos.alter("a_one", qos=frozenset({"gold", "normal"}), default_qos="gold")
    by_qos.converge()
    assert qos(by_qos) == ({"gold", "normal"}, "gold")


def test_a_state_without_a_qos_for_it_is_logged_once_and_nothing_happens(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    resource = world.allocate("one")
    world.converge()
    world.change(resource, paused=True)
    with caplog.at_level(logging.WARNING):
        world.in_step()
        world.in_step()
    assert caplog.text.count("qos_paused is not set: nothing is done about it") == 1
    assert world.resource(resource).state.value == "OK"


def test_an_unknown_qos_of_a_state_is_logged_and_errs_no_resource(make_world: WorldFactory) -> None:
    world = make_world(backend={**BY_QOS, "qos_paused": "nosuch"})
    bad, good = world.allocate("one"), world.allocate("two", project=1)
    world.converge()
    world.change(bad, paused=True)
    world.join("newcomer", project=1)
    report = world.sync()
    assert "newcomer" in world.members("a_two")
    assert report.counted() == {"stuck": 1, "done": 1}
    stuck = next(r for r in report.resources if r.resource_uuid == bad)
    assert "no such QoS" in stuck.message
    assert {world.resource(uuid).state.value for uuid in (bad, good)} == {"OK"}
    world.backend.state = replace(world.cluster, qos=world.cluster.qos | {"nosuch"})
    world.sync()
    assert qos(world) == ({"nosuch"}, "nosuch")
    world.in_step()


@pytest.mark.parametrize("flag", ["paused", "downscaled"])
def test_where_qos_are_enforced_both_states_close_the_account_for_new_jobs(
    enforced: World, flag: str
) -> None:
    resource = enforced.allocate("one")
    enforced.converge()
    enforced.change(resource, **{flag: True})
    enforced.sync()
    assert enforced.cluster.accounts["a_one"].submit_limit == 0
    assert qos(enforced) == (set(), "")
    enforced.in_step()
    enforced.change(resource, **{flag: False})
    enforced.sync()
    assert enforced.cluster.accounts["a_one"].submit_limit is None
    enforced.in_step()


def test_a_submission_limit_that_a_site_set_stays(enforced: World) -> None:
    enforced.allocate("one")
    enforced.alter("a_one", submit_limit=500)
    enforced.converge()
    assert enforced.cluster.accounts["a_one"].submit_limit == 500


def test_where_qos_are_not_enforced_a_closed_account_is_not_opened(by_qos: World) -> None:
    by_qos.allocate("one")
    by_qos.alter("a_one", submit_limit=0)
    by_qos.converge()
    assert by_qos.cluster.accounts["a_one"].submit_limit == 0


def test_a_mode_that_takes_nothing_away_pauses_nothing_and_does_not_say_it_did(
    make_world: WorldFactory,
) -> None:
    world = make_world(backend=BY_QOS, policy={"mode": "upsert-only"})
    resource = world.allocate("one")
    world.converge()
    before = dict(world.resource(resource).backend_metadata)
    world.change(resource, paused=True)
    world.in_step()
    assert qos(world) == (set(), "")
    assert world.resource(resource).backend_metadata == before


def test_a_qos_of_the_order_that_slurm_cannot_take_errs_its_resource_alone(make_world: WorldFactory) -> None:
    world = make_world(backend=ENFORCED)
    bad = world.allocate("one")
    world.allocate("two", project=1)
    world.converge()
    world.change(bad, attributes={"qos": "no such,thing"})
    world.join("newcomer", project=1)
    world.sync()
    assert "newcomer" in world.members("a_two")
    assert world.resource(bad).state.value == "Erred"
    assert "'no such,thing' cannot be used in SLURM" in world.resource(bad).error_message
    world.change(bad, attributes={})
    world.sync()
    assert world.resource(bad).state.value == "OK"
    world.in_step()


def test_a_resource_whose_qos_the_offering_has_no_more_keeps_its_members_in_step(
    make_world: WorldFactory, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(backend=ENFORCED)
    resource = world.allocate("one")
    world.converge()
    world.change(resource, attributes={"qos": "root_only"})
    gone = min(world.members("a_one"))
    world.leave(gone)
    world.join("newcomer")
    with caplog.at_level(logging.WARNING):
        assert not world.sync().failed
    assert "newcomer" in world.members("a_one")
    assert gone not in world.members("a_one")
    assert world.resource(resource).state.value == "OK"
    assert "the offering has no QoS 'root_only' in Waldur, which the order names" in caplog.text
    world.in_step()


def test_a_partition_that_the_cluster_does_not_have_adds_no_member_and_lets_people_leave(
    make_world: WorldFactory,
) -> None:
    world = make_world(backend={"default_partition": "gone"})
    resource = world.allocate("one")
    world.converge()
    state, before = world.backend.state, world.members("a_one")
    world.backend.state = replace(
        state, partitions=frozenset({"main"}), complete=state.complete | {Part.PARTITIONS}
    )
    world.join("newcomer")
    world.leave("ggran6")
    report = world.sync()
    (result,) = report.resources
    assert (result.result.value, world.members("a_one")) == ("stuck", before - {"ggran6"})
    assert "has no partition 'gone', which members of the account a_one shall get" in result.message
    assert world.resource(resource).state.value == "OK"
    state = world.backend.state
    world.backend.state = replace(state, partitions=frozenset({"gone"}))
    world.sync()
    assert "newcomer" in world.members("a_one")
    world.in_step()
