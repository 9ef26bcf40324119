# SPDX-License-Identifier: MIT
"""Usage that a plugin of the reference counts by component: what it does not name is unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.policy import PolicyRules
from agent.core.usage import AccountUsage, Usage, UsageQuery
from agent.plan.policy.gate import held_decreases
from tests.agent.plan.usage.reported_usage import CPU, MONTH, ONE, Holding, component, lines, plan

SHARED = component("more", 1, cpu=60)


def counted(
    cpu: float, *, may_fall: bool = False, unknown: dict[str, str] | None = None, **users: float
) -> Usage:
    """So much of `cpu`, in Waldur's units, of account `a`."""
    shares = {user: {"cpu": round(amount * 100)} for user, amount in users.items()}
    found = {} if unknown else {"a": AccountUsage({"cpu": round(cpu * 100)}, shares)}
    return Usage(
        UsageQuery(MONTH), found, 1, 100, by_component=True, may_fall=may_fall, unknown=unknown or {}
    )


def held() -> Holding:
    return Holding().total("r", "cpu", "5.00").total("r", "gres/gpu", "7.00").share("r", "cpu", "ann", "5.00")


CASES: dict[str, tuple[Usage, Holding, dict[str, Any], list[str]]] = {
    "no factor, and no other component": (
        counted(2, bob=1), Holding(), {},
        ["usage of a in 2026-11: cpu 2.00", "usage of users of a in 2026-11, cpu: bob 1.00"],
    ),
    "a component and a user that are not named stay": (
        counted(6), held(), {}, ["usage of a in 2026-11: cpu 5.00 -> 6.00"],
    ),
    "a user who is named with nothing has nothing any more": (
        counted(6, ann=0, bob=0), held(), {},
        ["usage of a in 2026-11: cpu 5.00 -> 6.00", "usage of users of a in 2026-11, cpu: ann 5.00 -> 0.00"],
    ),
    "also where a server forgets what is not reported": (
        counted(6), held(), {"in_full": True}, ["usage of a in 2026-11: cpu 5.00 -> 6.00, gres/gpu 7.00 -> 7.00"],
    ),
    "a component that shares its TRES is not asked": (
        counted(6), Holding(), {"components": (CPU, SHARED)}, ["usage of a in 2026-11: cpu 6.00"],
    ),
    "an account that is not named": (
        Usage(UsageQuery(MONTH), {"b": AccountUsage()}, 1, by_component=True), held(), {},
        ["a: account a is not named by the plugin: nothing is known of its usage"],
    ),
    "an account that fails": (
        counted(0, unknown={"a": "503"}), held(), {}, ["a: usage of account a is unknown: 503"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_named_stays_as_it_is(case: str) -> None:
    usage, holding, rules, expected = CASES[case]
    assert lines(plan(ONE, usage, holding, **rules)) == expected


@pytest.mark.parametrize("may_fall", [False, True])
def test_what_falls_is_held_unless_it_may(may_fall: bool) -> None:
    plans = plan(ONE, counted(3, ann=3, may_fall=may_fall), held())
    actions = [action for each in plans for action in each.actions]
    assert len(actions) == 2
    assert bool(list(held_decreases(actions, PolicyRules()))) is not may_fall


def test_what_may_fall_is_not_omitted() -> None:
    both = AccountUsage({"cpu": 300, "gres/gpu": 900})
    usage = Usage(UsageQuery(MONTH), {"a": both}, 1, 100, by_component=True)
    for may_fall, expected in {
        True: "cpu 5.00 -> 3.00, gres/gpu 7.00 -> 9.00",
        False: "gres/gpu 7.00 -> 9.00",
    }.items():
        plans = plan(ONE, replace(usage, may_fall=may_fall), held(), omits_lower=True)
        assert lines(plans) == [f"usage of a in 2026-11: {expected}"]
