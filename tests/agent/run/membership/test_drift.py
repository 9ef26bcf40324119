# SPDX-License-Identifier: MIT
"""The drift report on its schedule: it compares, logs and records, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from agent.config.model import Mode
from agent.core.policy import PolicyMode
from agent.run import passes
from agent.run.diagnosis import picture
from agent.run.preview import drift
from agent.state.hints import DRIFTS, PASSES, Drift
from rig.site import settings_of
from tests.agent.state.obstacles import damage
from tests.world import World

MODE = Mode.MEMBERSHIP_SYNC


def test_a_difference_is_logged_with_its_beginning_until_it_is_gone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.allocate("one")
    world.converge()
    assert drift.look(world.site, MODE).differences == 0
    world.leave(sorted(world.members("a_one"))[0])
    before = world.cluster
    first = drift.look(world.site, MODE)
    assert first.kinds == {"remove member": 1}
    assert "has drifted since" not in caplog.text, "the next pass does what is asked for now"
    again = drift.look(world.site, MODE)
    assert f"has drifted since {first.since}: 1 remove member" in caplog.text
    assert again.since == first.since
    assert again.looked >= first.looked
    assert world.cluster == before
    earlier = replace(again, looked="2026-01-01T00:00:00Z")
    DRIFTS.put(world.site.state_dir, world.site.offering.uuid, {MODE: earlier})
    observing = replace(world.site.offering.policy, mode=PolicyMode.OBSERVE)
    passes.sync_members(replace(world.site, offering=replace(world.site.offering, policy=observing)))
    assert shown(world) == earlier, "the pass has changed nothing"
    world.sync()
    assert shown(world) is None, "a pass has repaired it since then"
    known = PASSES.get(world.site.state_dir, world.site.offering.uuid, MODE) or []
    held = {**known[0], "held": ["0123456789ab"]}
    PASSES.put(world.site.state_dir, world.site.offering.uuid, {MODE: [held, *known]})
    assert shown(world) is None, "what a later pass holds has come after that"
    world.converge()
    assert drift.look(world.site, MODE).since == ""


def shown(world: World) -> Drift | None:
    """Return the drift that `status` shows."""
    settings = settings_of(world.site.state_dir.parent / "site.yaml")
    (offering,) = picture.of_site(settings, settings.offerings).offerings
    return next(each.drift for each in offering.modes if each.mode is MODE)


def test_the_last_report_is_remembered_by_mode(world: World) -> None:
    last = partial(DRIFTS.get, world.site.state_dir, world.site.offering.uuid)
    assert last(MODE) is None
    found = drift.look(world.site, MODE)
    assert (last(MODE), last(Mode.ORDER_PROCESS)) == (found, None)


def test_a_report_of_what_cannot_be_read_is_none(world: World) -> None:
    damage(world.site.state_dir)
    assert DRIFTS.get(world.site.state_dir, world.site.offering.uuid, MODE) is None
