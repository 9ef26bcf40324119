# SPDX-License-Identifier: MIT
"""What changes have cost: an hour and a day, approved or not, one transaction for the decision, and clocks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent.core.policy import Charge, Cost, History
from agent.state import charges
from agent.state.held_plans import HeldPlans, HeldRow
from agent.state.store import Source, Store
from tests.agent.state.conftest import offering

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ANN = Charge(Cost.MEMBERS_REMOVED, "a_one", "ann")
BOB = Charge(Cost.MEMBERS_REMOVED, "a_one", "bob")
ALL = Charge(Cost.ACCOUNTS_EMPTIED, "a_one")

# Each may spend while fewer than ten are spent.
SPENDER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from agent.core.policy import Charge, Cost
from agent.state import charges
from agent.state.store import Store
now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
for n in range(10):
    with Store(Path(sys.argv[1]), busy_s=600.0).write() as db:
        if len(charges.history(db, "demo", now).hour) < 10:
            charge = Charge(Cost.MEMBERS_REMOVED, sys.argv[2], f"user{n}")
            charges.reserve(db, [charge], cluster="demo", offering="o", mode="m", pass_id=sys.argv[2], now=now)
"""


def spend(
    source: Source, *spent: Charge, ago: timedelta = timedelta(), cluster: str = "demo", plan: str = ""
) -> None:
    where = {"cluster": cluster, "offering": "o", "mode": "membership_sync", "pass_id": "1", "plan": plan}
    charges.reserve(source, spent, now=NOW - ago, **where)


def test_an_hour_a_day_and_no_more(tmp_path: Path) -> None:
    assert charges.history(tmp_path, "demo", NOW) == History()
    spend(tmp_path, ANN, ago=timedelta(minutes=59))
    spend(tmp_path, BOB, ago=timedelta(minutes=61))
    spend(tmp_path, ALL, ago=timedelta(hours=25))
    assert charges.history(tmp_path, "demo", NOW) == History(
        frozenset({ANN}), frozenset({ANN, BOB}), paid=frozenset({ANN})
    )
    assert charges.history(tmp_path, "other", NOW) == History()


def test_the_same_charge_counts_once_and_from_its_last_time(tmp_path: Path) -> None:
    spend(tmp_path, ANN, ago=timedelta(hours=3))
    spend(tmp_path, ANN, ANN)
    assert charges.history(tmp_path, "demo", NOW) == History(
        frozenset({ANN}), frozenset({ANN}), paid=frozenset({ANN})
    )


def test_what_a_person_approved_does_not_count(tmp_path: Path) -> None:
    """And is free for as long as the approval is open."""
    held = HeldPlans(tmp_path, replace(offering(), uuid="o"), "membership_sync")
    held.hold(HeldRow("8b028d96707c", "account a", "too many", "demo", {"k": "remove ann"}))
    held.approvals.approve("8b028d96707c", expires=datetime.now(UTC) + timedelta(hours=1), by="ann")
    spend(tmp_path, ANN, plan="8b028d96707c")
    spend(tmp_path, BOB)
    assert charges.history(tmp_path, "demo", NOW) == History(
        frozenset({BOB}), frozenset({BOB}), frozenset({ANN}), frozenset({ANN, BOB})
    )
    held.approvals.note_done({"k"})
    held.approvals.close(set(), set(), set())
    assert charges.history(tmp_path, "demo", NOW).approved == frozenset()
    spend(tmp_path, ANN)
    assert charges.history(tmp_path, "demo", NOW).day == {ANN, BOB}


def test_two_passes_at_once_share_one_budget(tmp_path: Path) -> None:
    spenders = [subprocess.Popen([sys.executable, "-c", SPENDER, tmp_path, name]) for name in ("x", "y", "z")]
    assert [spender.wait() for spender in spenders] == [0] * 3
    assert len(charges.history(tmp_path, "demo", NOW).hour) == 10


def test_a_clock_that_was_ahead_blocks_no_longer_than_a_day(tmp_path: Path) -> None:
    spend(tmp_path, ANN, ago=-timedelta(days=40))
    seen = History(frozenset({ANN}), frozenset({ANN}), paid=frozenset({ANN}))
    assert charges.history(tmp_path, "demo", NOW) == seen, "a look counts it, and writes nothing"
    with Store(tmp_path).write() as db:
        assert charges.history(db, "demo", NOW) == seen
    later = charges.history(tmp_path, "demo", NOW + timedelta(hours=2))
    assert later == History(frozenset(), frozenset({ANN}))
    assert charges.history(tmp_path, "demo", NOW + timedelta(hours=25)) == History()
    spend(tmp_path, BOB, ago=-timedelta(seconds=50))
    with Store(tmp_path).write() as db:
        assert BOB in charges.history(db, "demo", NOW).hour, "a little is no fault of a clock"
        assert len(db.rows("SELECT * FROM charges WHERE at > '2026-03-01T12:00:10'")) == 1


def test_what_no_budget_counts_is_forgotten(tmp_path: Path) -> None:
    spend(tmp_path, ANN, ago=timedelta(days=2, minutes=1))
    spend(tmp_path, BOB, ago=timedelta(days=1, hours=23))
    assert charges.forget_old(tmp_path, NOW) == 1
    assert charges.forget_old(tmp_path, NOW) == 0


def test_a_cost_of_another_version_is_left_alone(tmp_path: Path) -> None:
    spend(tmp_path, ANN)
    with Store(tmp_path).write() as db:
        db.run("UPDATE charges SET cost = 'coffee'")
    assert charges.history(tmp_path, "demo", NOW) == History()
