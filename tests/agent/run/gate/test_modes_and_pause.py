# SPDX-License-Identifier: MIT
"""Modes of the policy, and a pause: what an offering leaves alone."""

from __future__ import annotations

import logging

import pytest

from agent.config.model import Mode
from agent.run import passes
from agent.state import pauses
from agent.state.hints import SKIPPED
from tests.agent.run.gate.conftest import World, untouched
from tests.agent.state.obstacles import damage

pytestmark = pytest.mark.safety

# Modes and pause ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "counts"),
    [
        ("sync", {"done": 3}),
        ("upsert-only", {"done": 2, "waiting": 1}),
        ("create-only", {"done": 1, "waiting": 2}),
        ("observe", {"waiting": 3}),
    ],
)
def test_modes(world: World, mode: str, counts: dict[str, int]) -> None:
    changed, ended = world.allocate_all("changed", "ended")
    world.place("new")
    world.waldur.orders.place_update(changed, {"cpu": 20})
    world.end(ended)
    before = untouched(world)
    report = world.process_orders(mode=mode)
    assert report.counted() == counts
    if mode == "observe":
        assert untouched(world) == before
    assert ("a_ended" in world.backend.state.accounts) is (mode != "sync")
    assert ("a_new" in world.backend.state.accounts) is (mode != "observe")
    site = world.site
    left = SKIPPED.get(site.state_dir, site.offering.uuid, Mode.ORDER_PROCESS)
    assert bool(left) is (mode != "sync")
    assert left is None or (left.count and all(f"mode {mode}" in line for line in left.lines))


def test_what_a_mode_skips_is_logged_once_per_change(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.place("one")
    caplog.set_level(logging.INFO)
    world.process_orders(mode="observe")
    world.process_orders(mode="observe")
    assert caplog.text.count("actions are skipped") == 1
    world.place("two")
    world.process_orders(mode="observe")
    assert caplog.text.count("actions are skipped") == 2


@pytest.mark.parametrize("way", ["in the configuration", "by command"])
def test_a_paused_offering_is_left_alone(world: World, way: str) -> None:
    site = world.under(paused=way != "by command")
    if way == "by command":
        pauses.pause(site.state_dir, site.offering, by="ann", reason="new switch")
    world.place("one")
    before = untouched(world)
    report = passes.process_orders(site)
    assert report.counted() == {"waiting": 1}
    assert "paused by" in report.orders[0].message
    assert untouched(world) == before
    if way == "by command":
        assert "ann" in report.orders[0].message and "new switch" in report.orders[0].message
        pauses.resume(site.state_dir, site.offering)
        assert world.process_orders().counted() == {"done": 1}


def test_a_pause_that_cannot_be_read_is_a_pause(world: World) -> None:
    site = world.site
    pauses.pause(site.state_dir, site.offering, by="ann")
    world.place("one")
    before = untouched(world)
    damage(site.state_dir)
    report = world.process_orders()
    assert untouched(world) == before
    assert report.failed and "move it aside" in str(report.error)


def test_a_creation_that_was_cut_off_is_finished_in_create_only(world: World) -> None:
    world.place("one")
    world.backend.outage = lambda call: call == "apply" and "a_one" in world.backend.state.accounts
    world.process_orders(mode="create-only")
    assert "a_one" in world.backend.state.accounts
    world.backend.outage = lambda _: False
    assert world.process_orders(mode="create-only").counted() == {"done": 1}
    assert dict(world.backend.state.accounts["a_one"].limits) == {"cpu": 600}
