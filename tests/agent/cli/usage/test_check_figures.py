# SPDX-License-Identifier: MIT
"""Counts of one month compared: what differs, what is unknown, and sums; and how they fit on a terminal."""

from __future__ import annotations

import io
from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from agent.cli.usage import check_text
from agent.core.model import AccountingType, Component
from agent.core.periods import Month
from agent.core.usage import AccountUsage, Usage, UsageQuery, UsageSource
from agent.plan.usage.check import CheckFacts, Comparison, CountedBy, Seconds, compare
from agent.run.usage.check import Checked
from tests.agent.cli.usage.sheets import CPU

MONTH = Month(2026, 10)
CORES = Component("cpu", "core-hours", AccountingType.LIMIT, "CPU", unit_factor=60)
HOUR = 3600

Hours = Mapping[str, int]


def usage(hours: Hours | None) -> Usage:
    """CPU hours by account; None for no answer."""
    accounts = {name: AccountUsage({"cpu": HOUR * n}) for name, n in (hours or {}).items()}
    return Usage(UsageQuery(MONTH), accounts, len(accounts))


def facts(
    *,
    reference: Hours | None = None,
    requested: Hours | None = None,
    allocated: Hours | None = None,
    sreport: Hours | None = None,
    **values: object,
) -> CheckFacts:
    ways = dict(zip(CountedBy, (reference, requested, allocated, sreport), strict=True))
    counted = {way: usage(hours) for way, hours in ways.items() if hours is not None}
    usual: dict[str, object] = {
        "known": frozenset({"a", "b"}),
        "components": (CORES,),
        "source": UsageSource.REQUESTED,
    }
    return CheckFacts(counted, **{**usual, **values})  # type: ignore[arg-type]


def alike(**hours: int) -> CheckFacts:
    return facts(reference=hours, requested=hours, allocated=hours, sreport=hours)


def test_what_is_counted_alike_does_not_differ() -> None:
    found = compare(alike(a=3, b=0))
    assert [(line.account, line.differs) for line in found.lines] == [("a", False)]
    assert (found.equals_summary, found.moves) == (True, False)


def test_who_differs_comes_first() -> None:
    same = {"a": 1, "b": 2, "c": 3}
    found = compare(facts(reference=same, requested=same, allocated={**same, "c": 4}))
    assert [(line.account, line.differs) for line in found.lines] == [("c", True), ("a", False), ("b", False)]


def test_without_a_summary_it_is_unknown_whether_it_is_equal() -> None:
    same = {"a": 1}
    assert compare(facts(reference=same, requested=same, allocated=same)).equals_summary is None
    assert compare(facts(reference=same, requested=same, allocated=same, sreport={})).equals_summary is None


def test_an_unknown_account_is_equal_to_nothing() -> None:
    read = alike(a=3)
    found = compare(read, "typo")
    assert (found.equals_summary, found.unknown) == (None, "typo")
    known = compare(read, "b")
    assert (known.equals_summary, known.unknown) == (True, "")


def test_an_account_that_the_summary_lacks_is_not_equal() -> None:
    same = {"a": 1, "gone": 2}
    found = compare(facts(reference=same, requested=same, allocated=same, sreport={"a": 1}))
    assert found.equals_summary is False
    assert [line.account for line in found.lines if line.differs] == ["gone"]


def test_differences_that_cancel_out_are_differences() -> None:
    same = {"a": 1, "b": 2}
    found = compare(facts(reference=same, requested=same, allocated=same, sreport={"a": 2, "b": 1}))
    assert found.total.seconds["cpu"].as_summed
    assert found.equals_summary is False


def test_requeues_and_the_last_second_are_distinguished() -> None:
    found = compare(
        facts(reference={"a": 5}, requested={"a": 9}, allocated={"a": 9}, last_runs=usage({"a": 6}))
    )
    seconds = found.lines[0].seconds["cpu"]
    assert (seconds.requeues, seconds.border) == (3 * HOUR, 1 * HOUR)


def test_a_job_of_which_the_reference_sees_no_run_in_the_month_counts_nothing_there() -> None:
    found = compare(facts(reference={"b": 1}, requested={"a": 9, "b": 1}, last_runs=usage({"b": 1})))
    seconds = found.lines[0].seconds["cpu"]
    assert (found.lines[0].account, seconds.counts[CountedBy.REFERENCE], seconds.requeues) == (
        "a",
        0,
        9 * HOUR,
    )


@pytest.mark.parametrize(
    ("in_waldur", "moves"),
    [({("a", "cpu"): Decimal("3.00")}, "0.00"), ({("a", "cpu"): None}, "3.00"), ({}, "0"), (None, "0")],
)
def test_a_bill_moves_where_waldur_has_something_else(in_waldur: object, moves: str) -> None:
    same = {"a": 3}
    found = compare(facts(reference=same, requested=same, allocated=same, waldur=in_waldur))
    assert found.lines[0].amounts["cpu"].moves == Decimal(moves)
    assert found.moves is (Decimal(moves) != 0)


def test_what_waldur_has_of_an_account_without_jobs_is_listed() -> None:
    in_waldur = {("b", "cpu"): Decimal("7.00")}
    same = {"a": 3}
    found = compare(facts(reference=same, requested=same, allocated=same, waldur=in_waldur))
    assert [(line.account, line.amounts["cpu"].moves) for line in found.lines] == [("b", -7), ("a", 0)]


def test_an_untracked_component_is_unknown() -> None:
    found = compare(facts(requested={"a": 3}, untracked=frozenset({"cpu"})))
    assert found.lines[0].amounts["cpu"].amounts == {CountedBy.REQUESTED: None}


hours = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5), min_size=1)


@settings(max_examples=60, deadline=None)
@given(hours, hours, hours, hours)
def test_sums_are_those_of_the_lines(
    reference: Hours, requested: Hours, allocated: Hours, sreport: Hours
) -> None:
    read = facts(reference=reference, requested=requested, allocated=allocated, sreport=sreport)
    found = compare(read)
    for way, hours in zip(CountedBy, (reference, requested, allocated, sreport), strict=True):
        counted = found.total.seconds["cpu"].counts[way] if found.lines else 0
        assert counted == HOUR * sum(hours.values())
    equal = {a: n for a, n in allocated.items() if n} == {a: n for a, n in sreport.items() if n}
    assert found.equals_summary is (equal if found.lines else None)
    assert any(line.differs for line in found.lines) is not (
        {a: n for a, n in reference.items() if n} == {a: n for a, n in requested.items() if n}
        == {a: n for a, n in allocated.items() if n} == {a: n for a, n in sreport.items() if n}
    )  # fmt: skip


def test_reasons_name_what_is_known_of_a_difference() -> None:
    counts = {
        CountedBy.REFERENCE: 10,
        CountedBy.REQUESTED: 100,
        CountedBy.ALLOCATED: 50,
        CountedBy.SUMMARY: 60,
    }
    said = list(check_text.reasons(Seconds("cpu", counts)))
    assert said == [
        "requested is 90 cpu-seconds more than reference: runs of requeued jobs, or jobs that run and have counted on "
        "since",
        "allocated is 50 cpu-seconds less than requested: jobs were given less than they asked for",
        "sreport is 10 cpu-seconds more than allocated: idle reservations, or jobs that the rollup thinks run still",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("most", [1, 999_999_999])
def test_amounts_are_whole_at_every_width(width: int, most: int) -> None:
    names = {"a" * 60: most, "b": 1}
    same = {"reference": names, "requested": names, "allocated": names, "sreport": names}
    comparison = compare(facts(**same, waldur={("b", "cpu"): Decimal("1.00")}))  # type: ignore[arg-type]
    lines = printed(comparison, width)
    row = next(line for line in lines if line.startswith("aaa"))
    assert row.count(f"{most:,}.00") == 4
    if width >= 80 and most == 1:
        assert max(map(cell_len, lines[4:7])) <= width


def printed(comparison: Comparison, width: int) -> list[str]:
    out = io.StringIO()
    found = Checked("Larch", "0" * 32, "larch", MONTH, "UTC", UsageSource.REQUESTED, (CPU,), comparison)
    check_text.show(found, Console(file=out, width=width, color_system=None))
    return out.getvalue().splitlines()
