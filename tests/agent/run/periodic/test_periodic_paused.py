# SPDX-License-Identifier: MIT
"""Periodic limits that come in a pause: they are kept, and carried out after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.errors import ClusterBusy, OfferingPaused
from agent.run.periodic import mode as periodic_limits
from rig.site import configuration
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.conftest import Command, command
from tests.agent.run.periodic.periodic_world import ACCOUNT, PERIODIC, PeriodicWorld
from tests.agent.run.periodic.used_limits import ASKED, LATER, LOWER, MINUTES, approve, waldur, world
from tests.agent.state.obstacles import block, unblock

__all__ = ["command", "waldur", "world"]

pytestmark = pytest.mark.events


def test_a_message_in_a_pause_waits_and_is_carried_out_after_it(world: PeriodicWorld) -> None:
    paused = world.with_policy(paused=True)
    for _ in range(2):
        assert world.received(world.message(ASKED), paused) is None
    world.order_pass(paused)
    assert (len(world.parked()), world.reported(), world.cluster.executed["write"]) == (1, [], 0)
    world.order_pass()
    settings = world.account_settings
    assert (settings.share, settings.limits, settings.resets) == (7, {MINUTES: {"cpu": 900}}, 1)
    assert (world.parked(), world.reported()) == ([], [(True, "", 3)])
    world.order_pass()
    assert (settings.resets, len(world.reported())) == (1, 1)


def test_a_pause_by_command_keeps_a_message_too(
    world: PeriodicWorld, waldur: SimulatedWaldur, tmp_path: Path, command: Command
) -> None:
    file = str(configuration(waldur, tmp_path, backend=PERIODIC))
    assert command("pause", world.offering.uuid, "-c", file).code == 0
    world.received(world.message(ASKED))
    world.order_pass()
    assert (len(world.parked()), world.reported()) == (1, [])
    assert command("pause", world.offering.uuid, "--off", "-c", file).code == 0
    world.order_pass()
    assert (world.parked(), world.reported(), world.account_settings.resets) == ([], [(True, "", 3)], 1)


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "the other way round"])
def test_of_two_messages_in_a_pause_the_newer_one_counts(world: PeriodicWorld, order: int) -> None:
    paused = world.with_policy(paused=True)
    messages = [
        world.message({"fairshare": 3, "reset_raw_usage": True}, timestamp="2026-01-01T00:10:00"),
        world.message({"fairshare": 4, "reset_raw_usage": True}, timestamp="2026-01-01T00:20:00"),
    ]
    for message in messages[::order]:
        world.received(message, paused)
    world.order_pass()
    assert (world.account_settings.share, world.account_settings.resets) == (4, 1)
    assert world.reported() == [(True, "", 2)]


def test_after_a_pause_a_newer_message_comes_first(world: PeriodicWorld) -> None:
    world.received(world.message({"fairshare": 3}), world.with_policy(paused=True))
    world.received(world.message({"fairshare": 2}, timestamp="2025-12-31T00:00:00"))
    words = "older than the message of 2026-01-01 00:10:02, which came in a pause and waits"
    assert world.reported() == [(False, words, 0)]
    world.received(world.message({"fairshare": 4}, timestamp=LATER))
    world.order_pass()
    assert (world.account_settings.share, world.parked()) == (4, [])
    assert world.reported()[1:] == [(True, "", 1)]


def test_a_message_in_a_pause_takes_the_place_of_one_that_is_held(world: PeriodicWorld) -> None:
    world.received(world.message(LOWER))
    (plan,) = world.waiting()
    paused = world.with_policy(paused=True)
    world.received(world.message(LOWER), paused)
    assert world.waiting() == [plan], "the same message: the policy and the operator know of this plan"
    world.received(world.message({"grp_tres_mins": {"cpu": 500}}, timestamp=LATER), paused)
    assert (world.waiting(), len(world.reported())) == ([], 1)
    world.order_pass()
    (other,) = world.waiting()
    assert other != plan
    assert world.reported()[1][1].startswith(f"held as plan {other[:12]}: ")
    approve(world)
    world.order_pass()
    assert (world.account_settings.limits, world.reported()[2]) == ({MINUTES: {"cpu": 500}}, (True, "", 1))


def test_what_cannot_be_done_is_reported_after_the_pause(world: PeriodicWorld) -> None:
    world.received(world.message(LOWER, backend_id="a_other"), world.with_policy(paused=True))
    assert world.reported() == []
    world.order_pass()
    words = f"it is about account a_other, and resource {world.resource} has {ACCOUNT}"
    assert (world.reported(), world.parked()) == ([(False, words, 0)], [])


def test_what_fails_before_its_beginning_waits_in_a_pause_as_well(world: PeriodicWorld) -> None:
    """A lock that is never free, or no usable backend: the task ends, its message stays."""
    paused = world.with_policy(paused=True)
    busy, document = ClusterBusy("it is being worked on by another task"), world.message(ASKED)
    periodic_limits.report_failure(paused.offering, world.site.state_dir, document, busy, client=world.client)
    world.order_pass()
    assert world.reported() == [(True, "", 3)]


def test_in_a_pause_a_message_that_cannot_be_written_down_stays_with_its_task(world: PeriodicWorld) -> None:
    """For as long as what else waits for the end of a pause: a day."""
    paused = world.with_policy(paused=True)
    block(world.site.state_dir)
    error = world.received(world.message(ASKED), paused)
    periodic_limits.report_failure(
        paused.offering, world.site.state_dir, world.message(ASKED), OfferingPaused("x"), client=world.client
    )
    unblock(world.site.state_dir)
    assert isinstance(error, OfferingPaused)
    assert (world.parked(), world.reported()) == ([], [])
    assert world.received(world.message(ASKED)) is None
    assert world.reported() == [(True, "", 3)]


def test_a_pause_keeps_what_waits(world: PeriodicWorld) -> None:
    world.received(world.message(LOWER))
    approve(world)
    world.order_pass(world.with_policy(paused=True))
    assert (len(world.parked()), world.account_settings.resets, len(world.reported())) == (1, 0, 1)
    world.order_pass()
    assert (world.parked(), world.account_settings.resets) == ([], 1)
