# SPDX-License-Identifier: MIT
"""From Waldur's numbers to the cluster's: factors, mapping, prepaid months, and every number that is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import PlanRefused
from agent.core.model import AccountingType, Component
from agent.core.units import MAX_BACKEND_VALUE, backend_limits, limit_number, prepaid_months, waldur_limits

LIMIT, USAGE, ONE = AccountingType.LIMIT, AccountingType.USAGE, AccountingType.ONE


def component(
    name: str,
    kind: AccountingType = LIMIT,
    *,
    factor: float = 1,
    limit: float | None = None,
    **targets: float,
) -> Component:
    """Targets are given with `_` for `/`, as `gres_gpu=60`."""
    mapped = {target.replace("_", "/"): value for target, value in targets.items()}
    return Component(name, "hours", kind, name, unit_factor=factor, limit=limit, targets=mapped)


CPU, MEM = component("cpu", factor=60000), component("mem", factor=61440)
NODE_HOURS = component("node_hours", gres_gpu=5, storage=10)

CASES: dict[str, tuple[list[Component], dict[str, Any], int | None, dict[str, int]]] = {
    "a factor per component": ([CPU, MEM], {"cpu": 10, "mem": 10}, None, {"cpu": 600_000, "mem": 614_400}),
    "decimals are exact": ([CPU], {"cpu": 1.1}, None, {"cpu": 66_000}),
    "a number as text": ([CPU], {"cpu": "1.1"}, None, {"cpu": 66_000}),
    "what is left below one is cut": ([component("cpu", factor=0.5)], {"cpu": 5}, None, {"cpu": 2}),
    "zero is a limit": ([CPU], {"cpu": 0}, None, {"cpu": 0}),
    "what is not asked for is not set": ([CPU, MEM], {"cpu": 1}, None, {"cpu": 60_000}),
    "one component, several targets": (
        [NODE_HOURS],
        {"node_hours": 2},
        None,
        {"gres/gpu": 10, "storage": 20},
    ),
    "components with a common target add up": (
        [component("a", cpu=60), component("b", cpu=6.5)],
        {"a": 1, "b": 2},
        None,
        {"cpu": 73},
    ),
    "halves add up before they are cut": (
        [component("a", cpu=0.5), component("b", cpu=0.5)],
        {"a": 1, "b": 1},
        None,
        {"cpu": 1},
    ),
    "the factor of the component does not count besides its targets": (
        [component("a", factor=1000, cpu=60)],
        {"a": 1},
        None,
        {"cpu": 60},
    ),
    "a component feeds the TRES of another": (
        [component("cpu", factor=60), component("extra", cpu=1)],
        {"cpu": 1, "extra": 5},
        None,
        {"cpu": 65},
    ),
    "static limit of a usage component": (
        [component("cpu", USAGE, factor=60, limit=10)],
        {},
        None,
        {"cpu": 600},
    ),
    "a static limit of zero": ([component("cpu", USAGE, limit=0)], {}, None, {"cpu": 0}),
    "a usage component without limit": ([component("cpu", USAGE)], {"cpu": 7}, None, {}),
    "prepaid, times the months": ([component("cpu", ONE, factor=60)], {"cpu": 2}, 12, {"cpu": 1440}),
    "prepaid through targets": ([component("n", ONE, gres_gpu=3)], {"n": 2}, 12, {"gres/gpu": 72}),
    "prepaid, months unknown": ([component("cpu", ONE)], {"cpu": 2}, None, {"cpu": 2}),
    "months do not count for limits": ([component("cpu", LIMIT)], {"cpu": 2}, 12, {"cpu": 2}),
    "the greatest": ([component("cpu")], {"cpu": MAX_BACKEND_VALUE}, None, {"cpu": MAX_BACKEND_VALUE}),
}


@pytest.mark.parametrize("case", CASES)
def test_limits_in_backend_units(case: str) -> None:
    components, asked, months, wanted = CASES[case]
    found = backend_limits(asked, components, months=months)
    assert dict(found.values) == wanted
    assert all(type(value) is int for value in found.values.values())
    cut = ("cpu: 5 of cpu * 0.5 is kept as 2: the cluster counts in whole units",)
    assert found.skipped == (cut if case == "what is left below one is cut" else ())


def test_static_limits_can_be_left_alone() -> None:
    components = [component("cpu", USAGE, limit=10), MEM]
    assert dict(backend_limits({"mem": 1}, components, with_static=False).values) == {"mem": 61_440}


def test_unknown_components_are_skipped_and_named() -> None:
    found = backend_limits({"cpu": 1, "gpu": 2}, [CPU])
    assert dict(found.values) == {"cpu": 60_000}
    assert found.skipped == ("gpu: no such component in backend_components",)


@pytest.mark.parametrize("limit", [-1.0, math.nan, math.inf, 1e19, 2.0**62], ids=str)
def test_a_static_limit_that_can_be_none_is_no_orders_fault(limit: float) -> None:
    """`limit_amount: -1` of a component that only Waldur has erred every create order."""
    components = [component("gpu", USAGE, factor=60, limit=limit), CPU]
    found = backend_limits({"cpu": 1}, components)
    assert dict(found.values) == {"cpu": 60_000}
    (note,) = found.skipped
    assert note.startswith(f"gpu: its static limit is {limit}, which no limit can be")
    assert waldur_limits({"cpu": 1}, components) == {"cpu": 1}
    assert backend_limits({"cpu": 1}, components, with_static=False).skipped == ()


BAD_NUMBERS = [
    None,
    True,
    False,
    -1,
    -0.5,
    "abc",
    "",
    "NaN",
    "inf",
    math.nan,
    math.inf,
    -math.inf,
    [1],
    {"a": 1},
]


@pytest.mark.parametrize("number", BAD_NUMBERS, ids=repr)
def test_what_is_no_number_is_refused_with_its_component(number: Any) -> None:
    with pytest.raises(PlanRefused, match=r"limit of cpu is .*: a number of 0 or more is needed"):
        backend_limits({"cpu": number}, [CPU])


@pytest.mark.parametrize("number", [2**63, 2**64, 2**70, 1e30, "1e400", "1e999999999"], ids=str)
@pytest.mark.parametrize("factor", [1, 0.001])
def test_more_than_the_cluster_counts_is_refused_and_not_cut(number: Any, factor: float) -> None:
    with pytest.raises(PlanRefused, match=f"counts no further than {MAX_BACKEND_VALUE}"):
        backend_limits({"cpu": number}, [component("cpu", factor=factor)])


def test_the_sentence_names_what_was_ordered_and_its_factor_in_plain_digits() -> None:
    with pytest.raises(PlanRefused) as refused:
        backend_limits({"cpu": 2**62}, [component("cpu", factor=60.0)])
    assert str(refused.value) == (
        "limit of cpu is 4611686018427387904 of cpu * 60 = 276701161105643274240: "
        "the cluster counts no further than 9223372036854775807"
    )
    with pytest.raises(PlanRefused, match="limit of cpu is 1000000000000000000000000000000: "):
        backend_limits({"cpu": 1e30}, [component("cpu", factor=0.5)])


def test_a_sum_beyond_what_the_cluster_counts_is_refused() -> None:
    both = [component("a", cpu=1), component("b", cpu=1)]
    with pytest.raises(PlanRefused, match="limit of cpu"):
        backend_limits({"a": 2**62, "b": 2**62}, both)


@pytest.mark.parametrize("factor", [-1.0, math.nan, math.inf])
def test_a_factor_that_makes_no_limit_is_refused(factor: float) -> None:
    """-1 would clear the limit, and a component that only Waldur has may carry any factor."""
    with pytest.raises(PlanRefused, match=r"limit of cpu is 1 of cpu \* "):
        backend_limits({"cpu": 1}, [component("cpu", factor=factor)])


@given(
    value=st.integers(0, 10**9) | st.decimals(0, 10**9, places=3),
    factor=st.sampled_from([1, 60, 1.1, 0.1, 60000, 61440]),
)
def test_a_limit_is_never_more_than_was_asked_for_and_less_by_under_one(value: Any, factor: float) -> None:
    exact = Decimal(str(value)) * Decimal(str(factor))
    found = backend_limits({"cpu": str(value)}, [component("cpu", factor=factor)]).values["cpu"]
    assert found <= exact < found + 1


@given(value=st.floats(allow_nan=True, allow_infinity=True) | st.integers() | st.text() | st.none())
def test_any_value_becomes_a_countable_number_or_a_refusal(value: Any) -> None:
    try:
        number = limit_number("cpu", value)
    except PlanRefused:
        return
    assert 0 <= number <= MAX_BACKEND_VALUE


WALDUR_CASES: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "asked and static": ({"mem": 1}, {"mem": 1, "cpu": 10}),
    "a static limit wins over an asked one": ({"cpu": 3}, {"cpu": 10}),
}


@pytest.mark.parametrize("case", WALDUR_CASES)
def test_limits_reported_to_waldur(case: str) -> None:
    asked, reported = WALDUR_CASES[case]
    found = waldur_limits(asked, [component("cpu", USAGE, factor=60, limit=10.0), MEM])
    assert found == reported
    assert type(found["cpu"]) is int


MONTHS = [
    ("2026-01-15", "2026-01-15", 1),
    ("2026-01-15", "2026-01-16", 1),
    ("2026-01-15", "2026-02-15", 1),
    ("2026-01-15", "2026-02-16", 2),
    ("2026-01-31", "2026-02-28", 1),
    ("2026-01-31", "2026-03-01", 2),
    ("2026-12-31", "2027-01-01", 1),
    ("2026-01-15", "2027-01-15", 12),
    ("2024-02-29", "2025-02-28", 12),
    ("2026-01-15", "2025-01-15", 1),
]


@pytest.mark.parametrize(("start", "end", "months"), MONTHS)
def test_a_begun_month_counts_whole(start: str, end: str, months: int) -> None:
    assert prepaid_months(date.fromisoformat(start), date.fromisoformat(end)) == months
    begin = datetime.fromisoformat(start).replace(hour=23, tzinfo=UTC)
    assert prepaid_months(begin, date.fromisoformat(end)) == months


DATES = st.dates(date(2000, 1, 1), date(2100, 1, 1))


@given(start=DATES, days=st.integers(-400, 4000), more=st.integers(0, 400))
def test_months_are_at_least_one_and_grow_with_the_end(start: date, days: int, more: int) -> None:
    end = start + timedelta(days=days)
    months = prepaid_months(start, end)
    assert 1 <= months <= prepaid_months(start, end + timedelta(days=more))
    assert months * 31 >= days


@given(start=DATES, count=st.integers(1, 240))
def test_the_same_day_n_months_later_is_n_months(start: date, count: int) -> None:
    month = start.month - 1 + count
    day = min(start.day, 28)
    end = date(start.year + month // 12, month % 12 + 1, day)
    assert prepaid_months(start.replace(day=day), end) == count
