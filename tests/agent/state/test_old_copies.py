# SPDX-License-Identifier: MIT
"""A state file that was copied back: what an old copy may still say, and how its age is found."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.state import held_plans, journal, pauses, store
from agent.state.held_plans import HeldPlans, HeldRow, HoldResult
from agent.state.store import Store
from tests.agent.state.conftest import offering

OURS = offering()
PLAN = HeldRow("p1", "account a", "too many", "demo", {"k": "remove a"})


def approve(held: HeldPlans) -> None:
    held.hold(PLAN)
    held.approvals.approve("p1", expires=datetime.now(UTC) + timedelta(days=2), by="ann")


def age(folder: Path, ago: timedelta) -> None:
    """The file was written last so long ago."""
    connection = sqlite3.connect(folder / "state.sqlite3")
    connection.execute("UPDATE store SET written = ?", (store.moment_text(datetime.now(UTC) - ago),))
    connection.commit()
    connection.close()


def put_back(folder: Path, ago: timedelta) -> None:
    """A copy that is so old lies there again, and the journal had gone on since."""
    journal.note(folder, OURS, "something", by="ann")
    age(folder, ago)


@pytest.mark.parametrize("hours", [2, 24])
def test_approvals_of_an_old_copy_are_dropped_and_it_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hours: int
) -> None:
    held = HeldPlans(tmp_path, OURS, "report")
    held.hold(PLAN)
    approve(held)
    pauses.pause(tmp_path, OURS, by="ann")
    put_back(tmp_path, timedelta(hours=hours))
    assert held.approvals.open() == [], "it is not carried out before it is logged"
    assert held.hold(PLAN) is HoldResult.KNOWN, "any write may be the first"
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with Store(tmp_path).write() as db:
                held_plans.drop_copied_back(db)
    assert caplog.text.count("a copy was put back. All approvals are dropped (1)") == 1
    logged = [line["action"]["text"] for line in journal.read(tmp_path)]
    assert sum("a copy was put back" in text for text in logged) == 1
    assert held.approvals.open() == [] and "by ann" in pauses.pause_note(tmp_path, OURS)
    approve(held)
    assert [each.plan for each in held.approvals.open()] == ["p1"]


def test_a_copy_of_today_and_a_journal_of_the_future_drop_nothing(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "report")
    approve(held)
    put_back(tmp_path, timedelta(minutes=50))
    assert held.approvals.open()
    put_back(tmp_path, timedelta(hours=3))
    tomorrow_s = time.time() + 86_400
    os.utime(tmp_path / "journal" / "journal.jsonl", (tomorrow_s, tomorrow_s))
    assert held.approvals.open()


def test_a_host_that_works_once_a_day_has_no_old_copy(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "report")
    approve(held)
    journal.note(tmp_path, OURS, "yesterday's pass", by="ann")
    yesterday_s = time.time() - 86_400
    os.utime(tmp_path / "journal" / "journal.jsonl", (yesterday_s, yesterday_s))
    age(tmp_path, timedelta(days=1))
    journal.note(tmp_path, OURS, "today's pass begins", by="ann")
    held.hold(PLAN)
    assert [each.plan for each in held.approvals.open()] == ["p1"]


def test_the_journal_waits_for_no_lock(tmp_path: Path) -> None:
    pauses.pause(tmp_path, OURS, by="ann")
    age(tmp_path, timedelta(minutes=30))
    with Store(tmp_path).write() as db:
        # Were it to wait for the file, it would wait for itself: for ten seconds, and then with a warning.
        journal.note(tmp_path, OURS, "from inside of a transaction", by="ann")
        pauses.resume(db, OURS)
    assert len(list(journal.read(tmp_path))) == 1
