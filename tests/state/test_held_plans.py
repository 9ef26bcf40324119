# SPDX-License-Identifier: MIT
"""Held plans and approvals: how long they stay, what they are for, and what is written when nothing can be."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.core.errors import StateError
from agent.state import empty_answers, held_plans, left_out
from agent.state.held_plans import HeldPlans, HeldRow, HoldResult
from agent.state.left_out import LeftOut
from agent.state.store import Store
from tests.state.conftest import offering

OURS, OTHER = offering(1), offering(2)
TOMORROW = timedelta(days=1)


def row(id: str = "p1", *, sticky: bool = False, figures: dict[str, str] | None = None) -> HeldRow:
    return HeldRow(
        id, "account a", "too many", "demo", ("remove a",), frozenset({"k1", "k2"}), figures or {}, sticky
    )


def approve(held: HeldPlans, plan: str = "p1", lasts: timedelta = TOMORROW) -> None:
    held.approvals.approve(plan, expires=datetime.now(UTC) + lasts, by="ann")


def test_a_plan_waits_from_when_it_was_first_seen(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "report")
    assert held.hold(row()) is HoldResult.NEW
    (first,) = held.waiting()
    assert held.hold(row(figures={"x": "1"})) is HoldResult.KNOWN
    (second,) = held.waiting()
    assert (second.since, second.figures) == (first.since, {"x": "1"}) and second.seen >= first.seen
    assert (second.offering, second.mode, second.keys) == (OURS.uuid, "report", {"k1", "k2"})
    assert HeldPlans(tmp_path, OTHER, "report").waiting() == HeldPlans(tmp_path, OURS, "x").waiting() == []
    held.drop("p1")
    assert held.waiting() == []


def test_what_a_pass_does_not_make_again_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldPlans(tmp_path, OURS, "membership_sync")
    for plan in (row("p1"), row("p2", sticky=True), row("p3")):
        held.hold(plan)
    held.hold(row("p2"))
    assert held.keep_only({"p2": frozenset(), "p3": frozenset()}) == ["p1"]
    assert [(each.id, each.sticky) for each in held.waiting()] == [("p2", True), ("p3", False)]
    assert [each["sticky"] for each in (plan.as_json() for plan in held.waiting())] == [True, False]
    # A sticky one goes when nobody has made it for an hour, or when it is a part of another one.
    assert held.keep_only({"p3": frozenset({"other"})}) == []
    monkeypatch.setattr(empty_answers, "BELIEVED_AFTER", timedelta(0))
    assert held.keep_only({"p3": frozenset({"other"})}) == ["p2"]


def test_a_sticky_plan_is_about_all_that_it_was_ever_held_for(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "membership_sync")
    held.hold(replace(row("p2", sticky=True), keys=frozenset({"a", "b"})))
    held.hold(replace(row("p2", sticky=True), keys=frozenset({"b"})))
    assert [each.keys for each in held.waiting()] == [{"a", "b"}]
    assert held.keep_only({"all": frozenset({"a", "b", "c"})}) == ["p2"]


def test_an_approval_is_for_the_figures_that_were_shown_and_ends(tmp_path: Path) -> None:
    held = HeldPlans(tmp_path, OURS, "report")
    held.hold(row(figures={"cpu": "5"}))
    approve(held)
    (approval,) = held.approvals.open()
    assert (approval.plan, approval.by, approval.figures, approval.begun) == (
        "p1",
        "ann",
        {"cpu": "5"},
        frozenset(),
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
    assert not held.approvals.begin("p1", ["k1"])
    approve(held)
    assert held.approvals.begin("p1", ["k1", "k2"]) and not held.approvals.begin("p1", ["k3"])
    held.approvals.close(still={"p9": {"k2"}})
    assert [each.begun for each in held.approvals.open()] == [{"k1", "k2"}]
    held.approvals.close(still={"p9": {"k2", "k3"}})
    assert held.approvals.open() == []


def test_all_held_are_those_with_a_plan_or_an_approval(tmp_path: Path) -> None:
    assert held_plans.all_held(tmp_path, [OURS, OTHER]) == []
    HeldPlans(tmp_path, OURS, "groups of people").hold(row())
    approve(HeldPlans(tmp_path, OTHER, "report"))
    HeldPlans(tmp_path, offering(3), "report").hold(row())
    found = [(held.offering, held.mode) for held in held_plans.all_held(tmp_path, [OURS, OTHER])]
    assert found == [(OURS, "groups of people"), (OTHER, "report")]


def test_what_is_left_out_is_news_once(tmp_path: Path) -> None:
    where = (tmp_path, OURS.uuid, "report")
    assert not left_out.write(*where, [], meant="")
    assert left_out.write(*where, ["a", "b"], meant="m1") and not left_out.write(
        *where, ["a", "b"], meant="m1"
    )
    first = left_out.last(*where)
    assert (first.count, first.lines) == (2, ("a", "b"))
    assert not left_out.write(*where, ["a", "c"], meant="m1")
    assert left_out.last(*where) == LeftOut(first.since, 2, ("a", "c"))
    assert left_out.write(*where, ["a", "d"], meant="m2")
    assert not left_out.write(*where, [], meant="m0")
    assert left_out.last(*where).count == 0


def test_in_one_transaction_a_hold_is_written_with_the_rest_or_not_at_all(tmp_path: Path) -> None:
    with contextlib.suppress(StateError), Store(tmp_path).write() as db:
        assert HeldPlans(db, OURS, "report").hold(row()) is HoldResult.NEW
        db.run("INSERT INTO nothing VALUES (1)")
    assert HeldPlans(tmp_path, OURS, "report").waiting() == []
    with Store(tmp_path).write() as db:
        assert HeldPlans(db, OURS, "report").hold(row()) is HoldResult.NEW
    assert HeldPlans(tmp_path, OURS, "report").hold(row()) is HoldResult.KNOWN
