# SPDX-License-Identifier: MIT
"""The drift report on its schedule: it compares, tells and remembers, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.run.preview import drift
from tests.membership.world import World

MODE = Mode.MEMBERSHIP_SYNC


def test_a_difference_is_told_with_its_beginning_until_it_is_gone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.allocate("one")
    world.settled()
    assert drift.look(world.site, MODE).differences == 0
    world.leave(sorted(world.members("a_one"))[0])
    before = world.cluster
    first = drift.look(world.site, MODE)
    assert first.kinds == {"remove member": 1}
    assert "has drifted since" in caplog.text
    again = drift.look(world.site, MODE)
    assert again.since == first.since
    assert again.looked >= first.looked
    assert world.cluster == before
    world.settled()
    assert drift.look(world.site, MODE).since == ""


def test_a_broken_report_is_no_report(world: World) -> None:
    path: Path = world.site.state_dir / "drift" / f"{world.site.offering.uuid}-{MODE}.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert drift.last(world.site.state_dir, world.site.offering.uuid, MODE) is None
    assert drift.look(world.site, MODE).differences == 0
