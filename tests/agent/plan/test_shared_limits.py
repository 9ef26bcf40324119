# SPDX-License-Identifier: MIT
"""Limits between Waldur and the cluster, case by case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import PlanRefused
from agent.core.model import AccountingType, Component, Resource, ResourceState
from agent.plan import shared_limits
from agent.plan.shared_limits import LimitRules
from tests.agent.plan.worlds import CPU, MEM

RULES = LimitRules((CPU, MEM))
PREPAID = Component("one", "months", AccountingType.ONE, "One", targets={"cpu": 60})
NODE = Component("node", "hours", AccountingType.LIMIT, "Nodes", targets={"cpu": 600, "gres/gpu": 120})
STATIC = Component("disk", "GB", AccountingType.USAGE, "Disk", limit=5, unit_factor=10)


@pytest.mark.parametrize(
    ("components", "in_waldur", "on_cluster", "expected"),
    [
        ((CPU, MEM), {"cpu": 10}, {"cpu": 600}, None),
        ((CPU, MEM), {"cpu": 10}, {"cpu": 1200}, {"cpu": 20}),
        ((CPU, MEM), {"cpu": 10, "x": 1}, {"cpu": 0}, {"cpu": 0, "x": 1}),
        ((CPU, MEM), {"cpu": 1.5}, {"cpu": 90}, None),
        ((CPU, MEM), {"cpu": 1.5}, {"cpu": 100}, {"cpu": 1}),
        ((CPU, MEM), {"cpu": "10"}, {"cpu": 600}, None),
        ((CPU, MEM), {}, {"cpu": 600, "gres/gpu": 7}, {"cpu": 10}),
        ((CPU, MEM), {"cpu": 10}, {}, None),
        ((CPU, MEM), {"cpu": -4}, {"cpu": 600}, {"cpu": 10}),
        ((CPU, MEM), {"cpu": None}, {"cpu": 600}, {"cpu": 10}),
        ((NODE,), {"node": 1}, {"cpu": 1200, "gres/gpu": 240}, {"node": 2}),
        ((NODE,), {"node": 1}, {"cpu": 1200, "gres/gpu": 120}, None),
        ((NODE,), {"node": 1}, {"cpu": 1200}, None),
        ((NODE, CPU), {"node": 1, "cpu": 1}, {"cpu": 1200, "gres/gpu": 240}, None),
        ((PREPAID, MEM), {"one": 1, "mem": 1}, {"cpu": 999, "mem": 61440}, None),
        ((PREPAID, CPU), {"one": 1, "cpu": 1}, {"cpu": 999}, None),
        ((STATIC,), {}, {"disk": 50}, None),
        ((STATIC,), {}, {"disk": 70}, {"disk": 7}),
    ],
)
def test_what_waldur_should_show(
    components: tuple[Component, ...],
    in_waldur: Mapping[str, Any],
    on_cluster: Mapping[str, int],
    expected: Mapping[str, Any] | None,
) -> None:
    rules = LimitRules(components)
    assert shared_limits.for_waldur(in_waldur, on_cluster, rules) == expected
    assert shared_limits.for_waldur(in_waldur, on_cluster, replace(rules, periodic=True)) is None


@given(
    in_waldur=st.dictionaries(st.sampled_from(["cpu", "mem", "x"]), st.floats(0, 1e6) | st.integers(-1, 99)),
    on_cluster=st.dictionaries(st.sampled_from(["cpu", "mem", "y"]), st.integers(0, 10**12)),
)
def test_what_waldur_has_already_is_not_reported_again(
    in_waldur: Mapping[str, Any], on_cluster: Mapping[str, int]
) -> None:
    once = shared_limits.for_waldur(in_waldur, on_cluster, RULES)
    if once is not None:
        assert shared_limits.for_waldur(once, on_cluster, RULES) is None


@given(in_waldur=st.dictionaries(st.sampled_from(["cpu", "mem"]), st.integers(0, 10**9) | st.floats(0, 1e6)))
def test_what_waldur_set_on_the_cluster_comes_back_as_it_was(in_waldur: Mapping[str, Any]) -> None:
    on_cluster = shared_limits.wanted(in_waldur, RULES, {"cpu", "mem"})
    assert shared_limits.for_waldur(in_waldur, on_cluster, RULES) is None


def test_what_the_cluster_should_have_is_of_tres_that_it_tracks() -> None:
    assert shared_limits.wanted({"cpu": 2, "mem": 1, "x": 3}, RULES, {"cpu"}) == {"cpu": 120}
    assert shared_limits.wanted({"one": 2}, LimitRules((PREPAID,)), {"cpu"}) == {}
    with pytest.raises(PlanRefused, match="limit of cpu is 'many'"):
        shared_limits.wanted({"cpu": "many"}, RULES, {"cpu"})


def test_limits_of_a_user_are_whole_units() -> None:
    assert shared_limits.of_user({"cpu": "2.00", "mem": 1.9, "x": 5}, [CPU, MEM]) == {
        "cpu": 120,
        "mem": 61440,
    }
    for value in ("many", -1, "nan", None):
        with pytest.raises(PlanRefused):
            shared_limits.of_user({"cpu": value}, [CPU])


def bought(end: datetime | None, **limits: Any) -> Resource:
    """A resource made on 10 January 2026."""
    made = datetime(2026, 1, 10, tzinfo=UTC)
    return Resource("r", "r", "r", ResourceState.OK, limits=limits, created=made, end_date=end)


@pytest.mark.parametrize(
    ("components", "limits", "end", "expected"),
    [
        ((PREPAID,), {"one": 2}, datetime(2026, 2, 10), {"cpu": 120}),
        ((PREPAID,), {"one": 2}, datetime(2026, 4, 10), {"cpu": 360}),
        ((PREPAID,), {"one": 2}, datetime(2026, 4, 11), {"cpu": 480}),
        ((PREPAID,), {"one": 2}, datetime(2026, 1, 1), {"cpu": 120}),
        # Months of the prepaid part alone; no component has memory here.
        ((PREPAID, CPU, MEM), {"one": 2, "cpu": 1, "mem": 9}, datetime(2026, 4, 10), {"cpu": 420}),
        ((PREPAID, MEM), {"mem": 9}, datetime(2026, 4, 10), {}),
        ((CPU,), {"cpu": 9}, datetime(2026, 4, 10), {}),
        # Mapped to two, one of which the cluster does not track.
        (
            (replace(PREPAID, targets={"cpu": 60, "disk": 1, "mem": 2}),),
            {"one": 2},
            datetime(2026, 4, 10),
            {"cpu": 360, "mem": 12},
        ),
        ((replace(PREPAID, targets={"disk": 1}),), {"one": 2}, None, {}),
    ],
)
def test_what_was_bought_for_months(
    components: tuple[Component, ...],
    limits: Mapping[str, Any],
    end: datetime | None,
    expected: Mapping[str, int],
) -> None:
    resource = bought(end, **limits)
    for rules in (LimitRules(components), LimitRules(components, from_waldur=True)):
        assert shared_limits.prepaid(resource, rules, {"cpu", "mem"}) == expected
    assert shared_limits.prepaid(resource, LimitRules(components, periodic=True), {"cpu", "mem"}) == {}


def test_without_dates_it_is_unknown_how_much_was_bought() -> None:
    rules = LimitRules((PREPAID,))
    with pytest.raises(
        PlanRefused, match="one is prepaid by the month, and Waldur gives the resource no end"
    ):
        shared_limits.prepaid(bought(None, one=2), rules, {"cpu"})
    with pytest.raises(PlanRefused, match="no date of its creation"):
        shared_limits.prepaid(replace(bought(datetime(2026, 4, 10), one=2), created=None), rules, {"cpu"})
    assert shared_limits.prepaid(bought(None), rules, {"cpu"}) == {}
