# SPDX-License-Identifier: MIT
"""Which components Waldur lacks, and which differ; what only Waldur has is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.model import AccountingType, Component, WaldurComponent
from agent.plan.components import Change, ComponentChange, changes

CPU = Component("cpu", "hours", AccountingType.LIMIT, "CPU", unit_factor=60)
BODY: dict[str, Any] = {
    "type": "cpu",
    "name": "CPU",
    "measured_unit": "hours",
    "billing_type": "limit",
    "limit_amount": None,
}

BODIES: dict[str, tuple[Component, dict[str, Any]]] = {
    "plain": (CPU, BODY),
    "static limit": (
        replace(CPU, accounting_type=AccountingType.USAGE, limit=10.0),
        {**BODY, "billing_type": "usage", "limit_amount": 10},
    ),
    "a limit of zero": (replace(CPU, limit=0.0), {**BODY, "limit_amount": 0}),
    "prepaid": (
        replace(CPU, accounting_type=AccountingType.ONE),
        {**BODY, "billing_type": "one", "is_prepaid": True},
    ),
    "optional fields": (
        replace(CPU, waldur_fields={"min_value": 1, "description": "x"}),
        {**BODY, "min_value": 1, "description": "x"},
    ),
    "an optional field wins": (
        replace(CPU, accounting_type=AccountingType.ONE, waldur_fields={"is_prepaid": False}),
        {**BODY, "billing_type": "one", "is_prepaid": False},
    ),
}


@pytest.mark.parametrize("what", BODIES)
def test_what_waldur_is_sent_has_no_factor(what: str) -> None:
    component, body = BODIES[what]
    (change,) = changes([component], [])
    assert change == ComponentChange("cpu", Change.CREATE, body, {k: (None, v) for k, v in body.items()})


PRESENT: list[tuple[dict[str, Any], Change, dict[str, tuple[Any, Any]]]] = [
    ({}, Change.LEAVE, {}),
    ({"limit_amount": ""}, Change.LEAVE, {}),
    ({"extra": 5}, Change.LEAVE, {}),
    ({"name": "cores"}, Change.UPDATE, {"name": ("cores", "CPU")}),
    ({"limit_amount": 5}, Change.UPDATE, {"limit_amount": (5, None)}),
    (
        {"name": "x", "measured_unit": "y"},
        Change.UPDATE,
        {"name": ("x", "CPU"), "measured_unit": ("y", "hours")},
    ),
]


@pytest.mark.parametrize(("there", "change", "differences"), PRESENT)
def test_a_present_component_is_changed_where_it_differs(
    there: dict[str, Any], change: Change, differences: dict[str, Any]
) -> None:
    present = WaldurComponent("uuid1", "cpu", {**BODY, **there})
    (found,) = changes([CPU], [present])
    assert (found.change, found.differences) == (change, differences)
    assert found.body == {"uuid": "uuid1", **BODY}


def test_a_period_that_only_waldur_has_is_sent_back_with_a_change() -> None:
    present = WaldurComponent("uuid1", "cpu", {**BODY, "name": "cores", "limit_period": "quarterly"})
    (found,) = changes([CPU], [present])
    assert found.body == {"uuid": "uuid1", **BODY, "limit_period": "quarterly"}
    assert found.differences == {"name": ("cores", "CPU")}
    (own,) = changes([replace(CPU, waldur_fields={"limit_period": "total"})], [present])
    assert own.body["limit_period"] == "total"
    assert own.differences["limit_period"] == ("quarterly", "total")


SAME: list[tuple[Any, Any, bool]] = [
    ("10", 10.0, True),
    ("10.000", 10.0, True),
    (10, 10.0, True),
    ("11", 10.0, False),
    (None, 10.0, False),
    ("ten", 10.0, False),
]


@pytest.mark.parametrize(("there", "wanted", "same"), SAME)
def test_a_number_may_come_as_text(there: Any, wanted: float, same: bool) -> None:
    present = WaldurComponent("u", "cpu", {**BODY, "limit_amount": there})
    (change,) = changes([replace(CPU, limit=wanted)], [present])
    assert (change.change is Change.LEAVE) == same


def test_what_only_waldur_has_is_left_alone() -> None:
    assert changes([], [WaldurComponent("u", "gpu", BODY)]) == []


COMPONENTS = st.lists(
    st.builds(
        Component,
        name=st.sampled_from(["cpu", "mem", "gres/gpu", "node"]),
        measured_unit=st.text(max_size=5),
        accounting_type=st.sampled_from(AccountingType),
        label=st.text(max_size=5),
        limit=st.none() | st.floats(0, 10**6),
        waldur_fields=st.dictionaries(
            st.sampled_from(["min_value", "description"]), st.integers(0, 9) | st.text(max_size=3)
        ),
    ),
    unique_by=lambda component: component.name,
    max_size=4,
)


@given(components=COMPONENTS, others=COMPONENTS)
def test_after_all_changes_there_is_nothing_left_to_change(
    components: list[Component], others: list[Component]
) -> None:
    """Where the same component came from another configuration before, too."""
    present = _made(changes(others, []))
    after = {**present, **_made(changes(components, present.values()))}
    again = changes(components, after.values())
    assert [change.change for change in again] == [Change.LEAVE] * len(components)
    assert {change.name: change for change in again} == {
        change.name: change for change in changes(components[::-1], after.values())
    }


def _made(found: list[ComponentChange]) -> dict[str, WaldurComponent]:
    return {change.name: WaldurComponent(change.name, change.name, change.body) for change in found}
