# SPDX-License-Identifier: MIT
"""Sums of jobs that have ended: they come back as they were written, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.usage import FinalisedMonth, FinalisedUsage
from agent.state import finalised_usage, forget
from agent.state.store import Store

MONTHS = {
    "2026-05": FinalisedMonth(7, {"a": {"ann": {"cpu": 2**70, "mem": 0}, "": {"cpu": 1}}, "b": {"bob": {}}}),
    "2026-04": FinalisedMonth(0, {}),
}
FINALISED = FinalisedUsage("where", 1779278400, 9, 1779256800, "3 abc", "2026-05", MONTHS)
DAMAGE = (
    """UPDATE finalised_accounts SET users = '{"ann": {"cpu": 1}}' WHERE account = 'a'""",
    "DELETE FROM finalised_accounts WHERE account = 'b'",
    "UPDATE finalised_accounts SET account = 'c' WHERE account = 'b'",
    "INSERT INTO finalised_accounts VALUES ('o', '2026-04', 'c', '{}')",
)


def test_what_was_saved_is_loaded_and_replaced(tmp_path: Path) -> None:
    assert finalised_usage.load(tmp_path, "o") is None
    assert finalised_usage.save(tmp_path, "o", FINALISED)
    assert finalised_usage.save(tmp_path, "other", FinalisedUsage("there", 1, 2))
    assert finalised_usage.load(tmp_path, "o") == FINALISED
    assert finalised_usage.load(tmp_path, "other") == FinalisedUsage("there", 1, 2)
    assert finalised_usage.save(tmp_path, "o", FinalisedUsage("where", 1, 2))
    assert finalised_usage.load(tmp_path, "o") == FinalisedUsage("where", 1, 2)


def test_it_is_forgotten_by_command_and_after_an_error(tmp_path: Path) -> None:
    finalised_usage.save(tmp_path, "o", FINALISED)
    assert finalised_usage.drop(tmp_path, "o")
    assert finalised_usage.load(tmp_path, "o") is None
    finalised_usage.save(tmp_path, "o", FINALISED)
    assert forget.forget(tmp_path, "finalised-usage", "o") == 5
    assert finalised_usage.load(tmp_path, "o") is None


@pytest.mark.parametrize("statement", DAMAGE)
def test_other_sums_than_those_that_were_written_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    finalised_usage.save(tmp_path, "o", FINALISED)
    with Store(tmp_path).write() as db:
        db.run(statement)
    assert finalised_usage.load(tmp_path, "o") is None
    assert "are not those that were written" in caplog.text
