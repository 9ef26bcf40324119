# SPDX-License-Identifier: MIT
"""Accounts that a backend marked are known to every process, apart by backend and mark."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.errors import StateError
from agent.state.marked_accounts import MarkedAccounts
from agent.state.store import NAME


def test_a_mark_is_there_for_all_until_it_is_taken_away(tmp_path: Path) -> None:
    marked, seen_by_another = (MarkedAccounts(tmp_path, "mam-1", "not listed") for _ in range(2))
    marked.add("a_one")
    marked.add("a_one")
    assert "a_one" in seen_by_another
    assert "a_two" not in seen_by_another
    seen_by_another.discard("a_one")
    assert "a_one" not in marked


def test_backends_and_marks_are_apart(tmp_path: Path) -> None:
    MarkedAccounts(tmp_path, "mam-1", "not listed").add("a_one")
    assert "a_one" not in MarkedAccounts(tmp_path, "mam-2", "not listed")
    assert "a_one" not in MarkedAccounts(tmp_path, "mam-1", "another")


def test_what_cannot_be_read_is_not_taken_for_unmarked(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"damaged" * 999)
    with pytest.raises(StateError):
        _ = "a_one" in MarkedAccounts(tmp_path, "mam-1", "not listed")
