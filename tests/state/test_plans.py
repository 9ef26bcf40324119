# SPDX-License-Identifier: MIT
"""Held plans and approvals: how long they stay, what they are for, and what is written when nothing can be."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.core.errors import StateError
from agent.state import plans
from agent.state.plans import HeldRow, Kept, LeftOut, Shelf
from agent.state.store import Store
from tests.state.conftest import offering

OURS, OTHER = offering(1), offering(2)
TOMORROW = timedelta(days=1)


def row(id: str = "p1", *, sticky: bool = False, figures: dict[str, str] | None = None) -> HeldRow:
    return HeldRow(
        id, "account a", "too many", "demo", ("remove a",), frozenset({"k1", "k2"}), figures or {}, sticky
    )


def approve(shelf: Shelf, plan: str = "p1", lasts: timedelta = TOMORROW) -> None:
    shelf.approve(plan, expires=datetime.now(UTC) + lasts, by="ann")


def test_a_plan_waits_from_when_it_was_first_seen(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, OURS, "report")
    assert shelf.hold(row()) is Kept.NEW
    (first,) = shelf.waiting()
    assert shelf.hold(row(figures={"x": "1"})) is Kept.KNOWN
    (second,) = shelf.waiting()
    assert (second.since, second.figures) == (first.since, {"x": "1"}) and second.seen >= first.seen
    assert (second.offering, second.mode, second.keys) == (OURS.uuid, "report", {"k1", "k2"})
    assert Shelf(tmp_path, OTHER, "report").waiting() == Shelf(tmp_path, OURS, "x").waiting() == []
    shelf.drop("p1")
    assert shelf.waiting() == []


def test_what_a_pass_does_not_make_again_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(tmp_path, OURS, "membership_sync")
    for plan in (row("p1"), row("p2", sticky=True), row("p3")):
        shelf.hold(plan)
    shelf.hold(row("p2"))
    assert shelf.keep_only({"p2": frozenset(), "p3": frozenset()}) == ["p1"]
    assert [(each.id, each.sticky) for each in shelf.waiting()] == [("p2", True), ("p3", False)]
    assert [each["sticky"] for each in (plan.as_json() for plan in shelf.waiting())] == [True, False]
    # A sticky one goes when nobody has made it for an hour, or when it is a part of another one.
    assert shelf.keep_only({"p3": frozenset({"other"})}) == []
    monkeypatch.setattr(plans, "BELIEVED_AFTER", timedelta(0))
    assert shelf.keep_only({"p3": frozenset({"other"})}) == ["p2"]


def test_a_sticky_plan_is_about_all_that_it_was_ever_held_for(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, OURS, "membership_sync")
    shelf.hold(replace(row("p2", sticky=True), keys=frozenset({"a", "b"})))
    shelf.hold(replace(row("p2", sticky=True), keys=frozenset({"b"})))
    assert [each.keys for each in shelf.waiting()] == [{"a", "b"}]
    assert shelf.keep_only({"all": frozenset({"a", "b", "c"})}) == ["p2"]


def test_an_approval_is_for_the_figures_that_were_shown_and_ends(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, OURS, "report")
    shelf.hold(row(figures={"cpu": "5"}))
    approve(shelf)
    (approval,) = shelf.approvals()
    assert (approval.plan, approval.by, approval.figures, approval.begun) == (
        "p1",
        "ann",
        {"cpu": "5"},
        frozenset(),
    )
    approve(shelf, lasts=timedelta(seconds=-1))
    assert shelf.approvals() == []
    approve(shelf)
    assert shelf.withdraw("p1") and not shelf.withdraw("p1") and not shelf.revoke("p1")


def test_a_plan_begins_once_and_what_is_left_of_it_keeps_its_approval(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, OURS, "report")
    assert not shelf.begin("p1", ["k1"])
    approve(shelf)
    assert shelf.begin("p1", ["k1", "k2"]) and not shelf.begin("p1", ["k3"])
    shelf.close_approvals(still={"p9": {"k2"}})
    assert [each.begun for each in shelf.approvals()] == [{"k1", "k2"}]
    shelf.close_approvals(still={"p9": {"k2", "k3"}})
    assert shelf.approvals() == []


def test_shelves_are_those_with_something_on_them(tmp_path: Path) -> None:
    assert plans.shelves(tmp_path, [OURS, OTHER]) == []
    Shelf(tmp_path, OURS, "groups of people").hold(row())
    approve(Shelf(tmp_path, OTHER, "report"))
    Shelf(tmp_path, offering(3), "report").hold(row())
    found = [(shelf.offering, shelf.mode) for shelf in plans.shelves(tmp_path, [OURS, OTHER])]
    assert found == [(OURS, "groups of people"), (OTHER, "report")]


def test_what_is_left_out_is_news_once(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, OURS, "report")
    assert not shelf.leave_out([], meant="")
    assert shelf.leave_out(["a", "b"], meant="m1") and not shelf.leave_out(["a", "b"], meant="m1")
    first = shelf.left_out()
    assert (first.count, first.lines) == (2, ("a", "b"))
    assert not shelf.leave_out(["a", "c"], meant="m1")
    assert shelf.left_out() == LeftOut(first.since, 2, ("a", "c"))
    assert shelf.leave_out(["a", "d"], meant="m2")
    assert not shelf.leave_out([], meant="m0")
    assert shelf.left_out().count == 0


def test_in_one_transaction_a_hold_is_written_with_the_rest_or_not_at_all(tmp_path: Path) -> None:
    with contextlib.suppress(StateError), Store(tmp_path).write() as db:
        assert Shelf(db, OURS, "report").hold(row()) is Kept.NEW
        db.run("INSERT INTO nothing VALUES (1)")
    assert Shelf(tmp_path, OURS, "report").waiting() == []
    with Store(tmp_path).write() as db:
        assert Shelf(db, OURS, "report").hold(row()) is Kept.NEW
    assert Shelf(tmp_path, OURS, "report").hold(row()) is Kept.KNOWN
