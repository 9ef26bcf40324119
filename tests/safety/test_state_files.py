# SPDX-License-Identifier: MIT
"""Small files in state_dir: whole or not there, private, readable for the service whoever wrote them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agent.state import json_files as state_files
from agent.state.json_files import Unreadable


def test_what_was_written_is_read_and_nobody_else_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.json"
    assert state_files.write_json(tmp_path, path, {"x": "ä \udce4"})
    assert state_files.read_json(path) == {"x": "ä \udce4"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(place.stat().st_mode) for place in (path.parent, path.parent.parent)} == {0o700}
    assert [place.name for place in path.parent.iterdir()] == ["c.json"]


def test_a_file_that_is_not_there_is_none_a_damaged_one_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert state_files.read_json(path) is None
    for damage in ("", "{", "[1]", "\xff"):
        path.write_bytes(damage.encode("latin-1"))
        with pytest.raises(Unreadable, match=r"x\.json"):
            state_files.read_json(path)


def test_a_damaged_file_hides_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.json").write_text("{")
    state_files.write_json(tmp_path, tmp_path / "b.json", {"x": 1})
    assert [document for _, document in state_files.documents(tmp_path)] == [{"x": 1}]
    assert "a.json cannot be read" in caplog.text


def test_what_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file stands there")
    assert not state_files.write_json(tmp_path, tmp_path / "folder" / "x.json", {})
    (tmp_path / "taken.json").mkdir()
    assert not state_files.write_json(tmp_path, tmp_path / "taken.json", {})
    assert sorted(place.name for place in tmp_path.iterdir()) == ["folder", "taken.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to give files away")
def test_what_root_writes_belongs_to_the_service(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 12345, 12345)
    state_files.write_json(state, state / "a" / "x.json", {})
    for place in (state / "a", state / "a" / "x.json"):
        assert (place.stat().st_uid, place.stat().st_gid) == (12345, 12345)
