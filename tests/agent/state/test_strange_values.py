# SPDX-License-Identifier: MIT
"""Values in the state file that no agent writes: a sentence, or a hint that is not there, and never a traceback."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from agent.core.errors import StateUnreadable
from agent.state import (
    empty_answers,
    report_state,
)
from agent.state.held_plans import HeldPlans
from agent.state.periodic_policies import PolicyStateLost
from agent.state.store import Store, moment_text
from tests.agent.state.filled import MODE, MONTH, OURS, READERS, filled

VALUES = ["X'00ff'", "'x'", "'5'", "'[[]]'", "'{\"a\": []}'", "'\"abc\"'", "'2026-01-01'"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A file with a row of each table."""
    Store(tmp_path).path.write_bytes(filled())
    return tmp_path


@pytest.mark.parametrize("table", READERS)
def test_a_value_that_no_agent_writes_ends_in_a_sentence_or_is_no_hint(state: Path, table: str) -> None:
    path = Store(state).path
    with sqlite3.connect(path) as db:
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "offering"]
        whole = db.execute(f"SELECT * FROM {table}").fetchone()
    assert whole, f"the test has no row of {table}"
    READERS[table](state)
    said = []
    for name, value in product(names, VALUES):
        with sqlite3.connect(path) as db:
            db.execute(f"DELETE FROM {table}")
            db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(whole))})", whole)
            with suppress(sqlite3.IntegrityError):  # a key that is a number
                db.execute(f"UPDATE {table} SET {name} = {value}")
        try:
            READERS[table](state)
        except (StateUnreadable, PolicyStateLost) as error:
            said.append(str(error))
    assert not [text for text in said if "no agent writes" not in text]


def future() -> datetime:
    return datetime.now(UTC) + timedelta(days=365)


def set_to_the_future(state: Path, table: str, *names: str) -> None:
    with sqlite3.connect(Store(state).path) as db:
        for name in names:
            text = future().isoformat(timespec="milliseconds").replace("+00:00", "Z")
            db.execute(f"UPDATE {table} SET {name} = ?", (text,))


def test_an_approval_of_a_clock_that_was_ahead_is_none(state: Path) -> None:
    approvals = HeldPlans(state, OURS, MODE).approvals
    assert [each.plan for each in approvals.open()] == ["p1"]
    set_to_the_future(state, "approvals", "approved", "expires")
    assert approvals.open() == []
    approvals.approve("p1", expires=datetime.now(UTC) + timedelta(days=1), by="ann")
    assert [each.plan for each in approvals.open()] == ["p1"]


def test_a_plan_of_a_clock_that_was_ahead_waits_from_now_on(state: Path) -> None:
    held = HeldPlans(state, OURS, MODE)
    with sqlite3.connect(Store(state).path) as db:
        db.execute("UPDATE held_plans SET keys = ?", (json.dumps({"k": moment_text(future())}),))
    assert held.keep_only(set(), set(), set()) == []
    (seen,) = held.waiting()[0].seen_keys.values()
    assert seen <= moment_text(datetime.now(UTC))


def test_an_empty_answer_of_a_clock_that_was_ahead_began_now(state: Path) -> None:
    set_to_the_future(state, "empty_answers", "since")
    empty_answers.note(state, OURS.uuid, MODE, is_empty=True)
    with sqlite3.connect(Store(state).path) as db:
        (since,) = db.execute("SELECT since FROM empty_answers").fetchone()
    assert datetime.fromisoformat(since) <= datetime.now(UTC)


def test_a_month_that_was_refused_by_a_clock_that_was_ahead_is_tried_again(state: Path) -> None:
    memory = report_state.load(state, OURS.uuid)
    memory.refuse(MONTH, future())
    assert not memory.is_refused(MONTH, datetime.now(UTC))
    memory.refuse(MONTH, datetime.now(UTC))
    assert memory.is_refused(MONTH, datetime.now(UTC))
