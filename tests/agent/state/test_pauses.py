# SPDX-License-Identifier: MIT
"""A pause lasts until it is ended, or until its own end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent.state import pauses
from agent.state.store import stamp, writing
from tests.agent.state.conftest import offering

OURS = offering()


def test_a_pause_ends_by_itself(tmp_path: Path) -> None:
    end = datetime.now(UTC) + timedelta(hours=2)
    pauses.pause(tmp_path, OURS, by="ann", reason="new fans", until=end)
    assert pauses.pause_note(tmp_path, OURS).endswith(f" until {stamp(end)} (new fans)")
    pauses.pause(tmp_path, OURS, by="ann", until=datetime.now(UTC) - timedelta(seconds=1))
    assert pauses.pause_note(tmp_path, OURS) == ""
    pauses.pause(tmp_path, OURS, by="ann")
    assert pauses.pause_note(tmp_path, OURS).startswith("by ann since ")


def test_a_pause_that_has_ended_is_known_until_it_is_forgotten(tmp_path: Path) -> None:
    end = datetime.now(UTC) - timedelta(seconds=1)
    assert pauses.ended(tmp_path) == {}
    pauses.pause(tmp_path, OURS, by="ann", until=end)
    assert pauses.ended(tmp_path) == {OURS.uuid: stamp(end)}
    pauses.pause(tmp_path, OURS, by="bob", until=datetime.now(UTC) + timedelta(hours=2))
    assert pauses.ended(tmp_path) == {}
    pauses.forget_ended(tmp_path, OURS, stamp(end))
    assert pauses.pause_note(tmp_path, OURS).startswith("by bob since ")
    pauses.pause(tmp_path, OURS, by="ann", until=end)
    pauses.forget_ended(tmp_path, OURS, stamp(end))
    assert pauses.ended(tmp_path) == {}


def test_an_end_that_nobody_can_read_is_none(tmp_path: Path) -> None:
    pauses.pause(tmp_path, OURS, by="ann")
    with writing(tmp_path) as db:
        db.run("UPDATE pauses SET until = 'soon'")
    assert "its column until has 'soon'" in pauses.pause_note(tmp_path, OURS)
