# SPDX-License-Identifier: MIT
"""Spending limits of Waldur: what of them lowers limits on the cluster, and a sentence for the others."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from agent.core.model import AccountingType, Component, Resource, ResourceState
from agent.core.units import backend_limits
from agent.plan import shared_limits
from tests.agent.plan.worlds import CPU, MEM

PREPAID = Component("one", "months", AccountingType.ONE, "One", targets={"cpu": 60})
PAYING = Component("gpu", "hours", AccountingType.USAGE, "GPU", unit_factor=60)
COMPONENTS = (CPU, MEM, PREPAID, PAYING)


def limited(limits: Any) -> Resource:
    return Resource("r", "r", "r", ResourceState.OK, spending_limits=limits)


KEPT = [
    ({"cpu": {"total": 5}}, True, {"cpu": 5}),
    ({"cpu": {"total": "5.5", "month": None}, "one": {"total": 0}}, True, {"cpu": Decimal("5.5"), "one": 0}),
    ({"one": {"total": 3}}, False, {"one": 3}),
    ({}, False, {}),
]


@pytest.mark.parametrize(("limits", "from_waldur", "caps"), KEPT)
def test_a_total_is_kept_where_waldur_owns_the_limit(limits: Any, from_waldur: bool, caps: Any) -> None:
    found = shared_limits.spending_of(limited(limits), COMPONENTS, from_waldur=from_waldur)
    assert (found.caps, found.notes) == (caps, ())


LEFT = [
    ({"cpu": {"month": 5}}, True, "cpu (month) is not kept on the cluster: it has no limits for a period"),
    ({"cpu": {"total": 5}}, False, "cpu (total) is not kept on the cluster: limits_source is `cluster`"),
    ({"gpu": {"total": 5}}, True, "gpu (total) is not kept on the cluster: the component has no limit"),
    ({"disk": {"total": 5}}, True, "disk (total) is not kept on the cluster: no such component"),
    ({"cpu": {"total": "many"}}, True, "limit of cpu is 'many': a number of 0 or more is needed"),
    ({"cpu": {"total": -1}}, True, "limit of cpu is -1: a number of 0 or more is needed"),
    ({"cpu": 5}, True, "spending limits of cpu are not kept: '5' is no map of periods"),
]


@pytest.mark.parametrize(("limits", "from_waldur", "sentence"), LEFT)
def test_what_the_cluster_cannot_keep_has_a_sentence(limits: Any, from_waldur: bool, sentence: str) -> None:
    found = shared_limits.spending_of(limited(limits), COMPONENTS, from_waldur=from_waldur)
    assert found.caps == {}
    (note,) = found.notes
    assert sentence in note


def test_a_policy_that_writes_the_limits_keeps_them_its_own() -> None:
    resource = limited({"cpu": {"total": 5}})
    found = shared_limits.spending_of(resource, COMPONENTS, from_waldur=True, periodic=True)
    assert found.caps == {}
    assert "a periodic policy of Waldur writes the limits" in found.notes[0]


def test_limits_above_it_are_lowered_and_others_stay() -> None:
    caps = {"cpu": Decimal(5), "mem": Decimal(9), "one": Decimal(4)}
    found = backend_limits({"cpu": 10, "mem": 2, "one": 2}, COMPONENTS, months=3, caps=caps)
    # 5 of cpu and, of 2 for 3 months, 4 prepaid.
    assert found.values == {"cpu": 5 * 60 + 4 * 60, "mem": 2 * 61440}
    assert found.skipped == (
        "cpu: 10 is lowered to its spending limit, 5",
        "one: 6 is lowered to its spending limit, 4",
    )
