# SPDX-License-Identifier: MIT
"""Values in the state file that no agent writes: a sentence, or a hint that is not there, and never a traceback."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from agent.core.errors import StateUnreadable
from agent.core.homes import HomeRecord
from agent.core.ownership import Origin
from agent.core.periods import Month
from agent.core.policy import Charge, Cost
from agent.state import (
    blocked,
    charges,
    drifts,
    empty_answers,
    history_runs,
    joined,
    ledger,
    left_out,
    listings,
    passes,
    pauses,
    periodic_policies,
    report_state,
)
from agent.state.drifts import Drift
from agent.state.held_plans import HeldPlans, HeldRow
from agent.state.homes import HomeState
from agent.state.listings import Listing
from agent.state.periodic_policies import ParkedMessage, PolicyState, PolicyStateLost
from agent.state.report_state import ReportState
from agent.state.store import Store, moment_text
from tests.state.conftest import offering

OURS = offering()
MODE, URL, CLUSTER = "order_process", "https://waldur.example", "demo"
NOW = datetime.now(UTC)
NAIVE = NOW.replace(tzinfo=None)
MONTH = Month(2026, 5)
VALUES = ["X'00ff'", "'x'", "'5'", "'[[]]'", "'{\"a\": []}'", "'\"abc\"'", "'2026-01-01'"]
READERS: dict[str, Callable[[Path], object]] = {
    "held_plans": lambda folder: HeldPlans(folder, OURS, MODE).keep_only({"p1"}, {"k"}, set()),
    "approvals": lambda folder: HeldPlans(folder, OURS, MODE).approvals.close(set(), set(), set()),
    "ledger_accounts": lambda folder: ledger.read(folder, CLUSTER, OURS.uuid),
    "ledgers": lambda folder: ledger.of_others(folder, CLUSTER, "x", {}),
    "joined_members": lambda folder: joined.of_accounts(folder, CLUSTER, {"a"}, NOW),
    "pauses": lambda folder: pauses.pause_note(folder, OURS),
    "charges": lambda folder: charges.history(folder, CLUSTER, NOW),
    "left_out": lambda folder: left_out.last(folder, OURS.uuid, MODE),
    "drifts": lambda folder: drifts.last(folder, OURS.uuid, MODE),
    "empty_answers": lambda folder: empty_answers.is_believed(folder, OURS.uuid, MODE),
    "waldur_listings": lambda folder: listings.known(folder, OURS.uuid, URL),
    "seen_offerings": lambda folder: listings.was_seen(folder, OURS.uuid, URL, timedelta(hours=1)),
    "passes": lambda folder: passes.last(folder, OURS.uuid, MODE),
    "homes": lambda folder: HomeState(folder, OURS.uuid).users,
    "refused_months": lambda folder: report_state.load(folder, OURS.uuid).is_refused(MONTH, NOW),
    "live_jobs": lambda folder: sum(report_state.load(folder, OURS.uuid).jobs_of(MONTH, "a").values()),
    "failed_resources": lambda folder: report_state.load(folder, OURS.uuid).failed,
    "history_months": lambda folder: history_runs.keep(folder, "run", ["2026-06"]),
    "blocked_members": lambda folder: blocked.by_account(folder, OURS.uuid),
    "periodic_policies": lambda folder: PolicyState(folder, OURS.uuid, "p", "r").applied(NAIVE),
    "periodic_resets": lambda folder: PolicyState(folder, OURS.uuid, "p", "r").has_reset("2026", NAIVE),
    "periodic_parked": lambda folder: periodic_policies.parked(folder, OURS.uuid),
}  # fmt: skip


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A file with a row of each of these tables."""
    folder = tmp_path / "state"
    held = HeldPlans(folder, OURS, MODE)
    held.hold(HeldRow("p1", "account a", "too many", CLUSTER, {"k": "remove a"}, {"a": "1"}))
    held.approvals.approve("p1", expires=NOW + timedelta(days=1), by="ann")
    ledger.write(folder, CLUSTER, OURS, {"a": Origin.MADE}, is_seen=True)
    ledger.write_named(folder, CLUSTER, OURS, {"a"}, None)
    joined.write(folder, CLUSTER, [("a", "ann")], NOW)
    pauses.pause(folder, OURS, by="ann")
    charge = Charge(next(iter(Cost)), "a", "ann")
    charges.reserve(
        folder, [charge], cluster=CLUSTER, offering=OURS.uuid, mode=MODE, pass_id="1", now=NOW
    )  # fmt: skip
    left_out.write(folder, OURS.uuid, MODE, ["remove ann"], meant="x")
    drifts.write(folder, OURS.uuid, MODE, Drift("2026-05-01T00:00:00Z", "", {"remove member": 1}))
    empty_answers.note(folder, OURS.uuid, MODE, is_empty=True)
    listings.write(folder, OURS.uuid, URL, {"robots": Listing(NOW)})
    listings.note_seen(folder, OURS.uuid, URL)
    passes.add(folder, OURS.uuid, MODE, {"ended": "2026-05-01T00:00:00Z", "result": "done"}, idle=False)
    homes = HomeState(folder, OURS.uuid)
    homes["ann"] = HomeRecord("/home/ann", "", 1, "")
    assert homes.save()
    report_state.save(
        folder, OURS.uuid, ReportState({str(MONTH): NOW}, {str(MONTH): {"a": {"1": 5}}}, frozenset({"r"}))
    )
    history_runs.add(folder, "run", OURS.uuid, {}, "2026-05", {"month": "2026-05"})
    with Store(folder).write() as db:
        db.run("INSERT INTO blocked_members VALUES (?, 'a', 'ann', '')", OURS.uuid)
    policy = PolicyState(folder, OURS.uuid, "p", "r")
    policy.note_applied(NAIVE, NAIVE)
    policy.begin_reset("2026", NAIVE)
    policy.park(ParkedMessage({}, NAIVE, NAIVE, ()))
    return folder


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
