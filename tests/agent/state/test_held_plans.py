# SPDX-License-Identifier: MIT
"""Held plans and approvals: how long they stay, what they are for, and what is written when nothing can be."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.core.errors import StateError
from agent.state import empty_answers, held_plans
from agent.state.held_plans import HeldPlans, HeldRow, HoldResult
from agent.state.store import Store
from tests.agent.state.conftest import offering

OURS, OTHER = offering(1), offering(2)
TOMORROW = timedelta(days=1)


def key(account: str, user: str = "ann") -> str:
    """The key of an action as the policy makes it."""
    return json.dumps(["RemoveMember", {"account": account, "user": user}])


K1, K2, K3 = key("a"), key("a", "bob"), key("b")


def row(id: str = "p1", *keys: str, figures: dict[str, str] | None = None, is_apart: bool = False) -> HeldRow:
    lines = {each: f"line of {each}" for each in keys or (K1, K2)}
    return HeldRow(id, "account a", "too many", "demo", lines, figures or {}, is_apart)


def approve(held: HeldPlans, plan: str = "p1", lasts: timedelta = TOMORROW) -> int:
    return held.approvals.approve(plan, expires=datetime.now(UTC) + lasts, by="ann")


def test_a_plan_waits_from_when_it_was_first_seen(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "report")
    assert held.hold(row()) is HoldResult.NEW
    (first,) = held.waiting()
    assert held.hold(row(figures={"x": "1"})) is HoldResult.KNOWN
    (second,) = held.waiting()
    assert (second.since, second.figures) == (first.since, {"x": "1"}) and second.seen >= first.seen
    assert (second.offering, second.mode, second.keys) == (OURS.uuid, "report", {K1, K2})
    assert HeldPlans(tmp_path, OTHER, "report").waiting() == HeldPlans(tmp_path, OURS, "x").waiting() == []
    held.drop("p1")
    assert held.waiting() == []


def test_what_is_not_wanted_any_more_is_gone_at_once_where_its_account_was_looked_at(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "membership_sync")
    held.hold(row("p1", K1, K2))
    held.hold(row("p2", K3))
    assert held.keep_only(set(), {K1}, {"a", "b"}) == ["p1", "p2"], "K1 is part of another plan"
    held.hold(row("p1", K1, K2))
    assert held.keep_only({"p1"}, {K1}, {"a"}) == []
    (left,) = held.waiting()
    assert (left.keys, set(left.lines)) == ({K1}, {K1})


def test_what_an_answer_lacks_waits_for_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldPlans(tmp_path, OURS, "membership_sync")
    held.hold(row("p1", K1, K3))
    held.hold(row("p1", K1))
    assert held.waiting()[0].keys == {K1, K3}, "a part of it is held: it waits as a whole"
    assert approve(held) == 1, "an approval is for what is shown"
    assert held.approvals.open()[0].keys == {K1}
    assert held.keep_only(set(), set(), {"x"}) == []
    assert (held.waiting()[0].keys, held.planned()) == ({K1, K3}, [])
    assert approve(held) == 0, "nothing of it is planned now"
    monkeypatch.setattr(empty_answers, "BELIEVED_AFTER", timedelta(0))
    assert held.keep_only(set(), set(), {"x"}) == ["p1"]


def test_only_plans_that_no_pass_over_everything_has_seen_are_apart(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "membership_sync")
    held.hold(row(is_apart=True))
    assert held.waiting()[0].is_apart
    held.hold(row())
    held.hold(row(is_apart=True))
    assert not held.waiting()[0].is_apart


def test_what_is_carried_out_leaves_the_rest_to_wait(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "membership_sync")
    held.hold(row("p1", K1, K2, K3))
    held.release("p1", [K1, K2])
    (left,) = held.waiting()
    assert (left.keys, set(left.lines)) == ({K3}, {K3})
    held.release("p1", [K3])
    held.release("p1", [K3])
    assert held.waiting() == []


def test_an_approval_is_for_the_figures_that_were_shown_and_ends(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "report")
    held.hold(row(figures={"cpu": "5"}))
    approve(held)
    (approval,) = held.approvals.open()
    assert (approval.plan, approval.by, approval.figures, approval.keys, approval.has_begun) == (
        "p1",
        "ann",
        {"cpu": "5"},
        {K1, K2},
        False,
    )
    approve(held, lasts=timedelta(seconds=-1))
    assert held.approvals.open() == []
    approve(held)
    assert (
        held.approvals.withdraw("p1")
        and not held.approvals.withdraw("p1")
        and not held.approvals.revoke("p1")
    )


def test_a_plan_begins_once_and_what_is_left_of_it_keeps_its_approval(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "report")
    assert not held.approvals.begin("p1")
    held.hold(row())
    approve(held)
    assert held.approvals.begin("p1") and not held.approvals.begin("p1")
    assert [each.has_begun for each in held.approvals.open()] == [True]
    held.approvals.close(set(), {K2}, {"a"})
    assert [each.keys for each in held.approvals.open()] == [{K2}]
    held.approvals.close(set(), set(), set())
    assert [each.keys for each in held.approvals.open()] == [{K2}], "its account was not looked at"
    held.approvals.close(set(), set(), {"a"})
    assert held.approvals.open() == []


def test_what_is_done_was_approved_once(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "report")
    held.hold(row())
    approve(held)
    held.approvals.note_done({K1})
    held.approvals.close(set(), {K1, K2}, set())
    assert [each.keys for each in held.approvals.open()] == [{K1, K2}], "it was not done after all"
    held.approvals.note_done({K1})
    held.approvals.close(set(), set(), set())
    assert [each.keys for each in held.approvals.open()] == [{K2}]


def test_all_held_are_those_with_a_plan_or_an_approval(tmp_path: Path) -> None:
    assert held_plans.all_held(tmp_path, [OURS, OTHER]) == []
    HeldPlans(tmp_path, OURS, "groups of people").hold(row())
    other = HeldPlans(tmp_path, OTHER, "report")
    other.hold(row())
    approve(other)
    other.drop("p1")
    HeldPlans(tmp_path, offering(3), "report").hold(row())
    found = [(held.offering, held.mode) for held in held_plans.all_held(tmp_path, [OURS, OTHER])]
    assert found == [(OURS, "groups of people"), (OTHER, "report")]


def test_in_one_transaction_a_hold_is_written_with_the_rest_or_not_at_all(tmp_path: Path) -> None:
    with contextlib.suppress(StateError), Store(tmp_path).write() as db:
        assert HeldPlans(db, OURS, "report").hold(row()) is HoldResult.NEW
        db.run("INSERT INTO nothing VALUES (1)")
    assert HeldPlans(tmp_path, OURS, "report").waiting() == []
    with Store(tmp_path).write() as db:
        assert HeldPlans(db, OURS, "report").hold(row()) is HoldResult.NEW
    assert HeldPlans(tmp_path, OURS, "report").hold(row()) is HoldResult.KNOWN
