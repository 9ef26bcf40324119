# SPDX-License-Identifier: MIT
"""Sums of jobs that have ended: they come back as they were written, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.usage import SettledMonth, SettledUsage
from agent.state import forget, settled_usage
from agent.state.store import Store

MONTHS = {
    "2026-05": SettledMonth(7, {"a": {"ann": {"cpu": 2**70, "mem": 0}, "": {"cpu": 1}}, "b": {"bob": {}}}),
    "2026-04": SettledMonth(0, {}),
}
SETTLED = SettledUsage("where", 1779278400, 9, 1779256800, "3 abc", "2026-05", MONTHS)
DAMAGE = (
    """UPDATE settled_accounts SET users = '{"ann": {"cpu": 1}}' WHERE account = 'a'""",
    "DELETE FROM settled_accounts WHERE account = 'b'",
    "UPDATE settled_accounts SET account = 'c' WHERE account = 'b'",
    "INSERT INTO settled_accounts VALUES ('o', '2026-04', 'c', '{}')",
)


def test_what_was_saved_is_loaded_and_replaced(tmp_path: Path) -> None:
    assert settled_usage.load(tmp_path, "o") is None
    assert settled_usage.save(tmp_path, "o", SETTLED)
    assert settled_usage.save(tmp_path, "other", SettledUsage("there", 1, 2))
    assert settled_usage.load(tmp_path, "o") == SETTLED
    assert settled_usage.load(tmp_path, "other") == SettledUsage("there", 1, 2)
    assert settled_usage.save(tmp_path, "o", SettledUsage("where", 1, 2))
    assert settled_usage.load(tmp_path, "o") == SettledUsage("where", 1, 2)


def test_it_is_forgotten_by_command_and_after_an_error(tmp_path: Path) -> None:
    settled_usage.save(tmp_path, "o", SETTLED)
    assert settled_usage.drop(tmp_path, "o")
    assert settled_usage.load(tmp_path, "o") is None
    settled_usage.save(tmp_path, "o", SETTLED)
    assert forget.forget(tmp_path, "settled-usage", "o") == 5
    assert settled_usage.load(tmp_path, "o") is None


@pytest.mark.parametrize("statement", DAMAGE)
def test_other_sums_than_those_that_were_written_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    settled_usage.save(tmp_path, "o", SETTLED)
    with Store(tmp_path).write() as db:
        db.run(statement)
    assert settled_usage.load(tmp_path, "o") is None
    assert "are not those that were written" in caplog.text
