# SPDX-License-Identifier: MIT
"""What update orders mean, and when one is refused or has to wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.errors import BackendUnavailable, PlanRefused
from agent.core.model import OrderType, Part
from agent.plan import orders
from agent.plan.allocations import OfferingRules
from backends.testing.memory import without
from tests.agent.plan.worlds import (
    CPU,
    MAPPED,
    MEM,
    PREPAID,
    RULES,
    STATIC,
    TREE,
    case,
    cluster,
    end_of,
    rendered,
)

STANDING = cluster(TREE, limits={"a_one": {"cpu": 60, "mem": 61440}})

UPDATES: dict[str, tuple[dict[str, Any], OfferingRules, list[str], tuple[str, ...]]] = {
    "new limits": ({"order": {"limits": {"cpu": 2}}}, RULES, ["set limits a_one cpu=60->120"], ()),
    "the same limits": ({"order": {"limits": {"cpu": 1, "mem": 1}}}, RULES, [], ()),
    "lower": ({"order": {"limits": {"cpu": 0}}}, RULES, ["set limits a_one cpu=60->0"], ()),
    "plan switch": ({"quotas": {"cpu": 5}}, RULES, ["set limits a_one cpu=60->300"], ()),
    "limits before quotas": (
        {"order": {"limits": {"cpu": 2}}, "quotas": {"cpu": 5}},
        RULES,
        ["set limits a_one cpu=60->120"],
        (),
    ),
    "neither limits nor quotas": (
        {"resource": {"limits": {"cpu": 9}}},
        RULES,
        [],
        ("the order carries no limits and its plan no quotas: nothing to change",),
    ),
    "mapped": (
        {"order": {"limits": {"nodes": 2}}},
        replace(RULES, components=(MAPPED,)),
        ["set limits a_one cpu=60->1200 gres/gpu=none->10"],
        (),
    ),
    "mapped, with a static limit in addition": (
        {"order": {"limits": {"nodes": 1}}},
        replace(RULES, components=(MAPPED, STATIC)),
        ["set limits a_one cpu=60->1200 gres/gpu=none->5"],
        (),
    ),
    "static limits are not touched": (
        {"order": {"limits": {"mem": 2}}},
        replace(RULES, components=(STATIC, MEM)),
        ["set limits a_one mem=61440->122880"],
        (),
    ),
    "a TRES that the cluster does not track": (
        {"order": {"limits": {"fpga": 2, "cpu": 2}}},
        replace(RULES, components=(CPU, replace(CPU, name="fpga"))),
        ["set limits a_one cpu=60->120"],
        ("fpga: this cluster keeps no limit of it",),
    ),
    "an unknown component": (
        {"order": {"limits": {"gold": 2, "cpu": 2}}},
        RULES,
        ["set limits a_one cpu=60->120"],
        ("gold: no such component in backend_components",),
    ),
    "prepaid renewal": (
        {"order": {"limits": {"cpu": 1}, "attributes": {"new_end_date": "2026-07-10"}}},
        replace(RULES, components=(PREPAID,)),
        ["set limits a_one cpu=60->360"],
        (),
    ),
    "prepaid renewal, the resource has its new end already": (
        {"order": {"limits": {"cpu": 1}}, "resource": {"end_date": end_of(2026, 7, 10)}},
        replace(RULES, components=(PREPAID,)),
        ["set limits a_one cpu=60->360"],
        (),
    ),
    "the order's end is later than the resource's": (
        {
            "order": {"limits": {"cpu": 1}, "attributes": {"new_end_date": "2026-07-10T00:00:00Z"}},
            "resource": {"end_date": end_of(2026, 4, 10)},
        },
        replace(RULES, components=(PREPAID,)),
        ["set limits a_one cpu=60->360"],
        (),
    ),
    "an end that is no date does not make the months one": (
        {
            "order": {"limits": {"cpu": 1}, "attributes": {"new_end_date": "soon"}},
            "resource": {"end_date": end_of(2026, 7, 10)},
        },
        replace(RULES, components=(PREPAID,)),
        ["set limits a_one cpu=60->360"],
        (),
    ),
}


@pytest.mark.parametrize("what", UPDATES)
def test_update(what: str) -> None:
    facts, rules, lines, notes = UPDATES[what]
    plan = orders.update(case(OrderType.UPDATE, account="a_one", **facts), rules, STANDING)
    assert rendered(plan.actions) == [*lines, "complete order order1"]
    assert plan.notes == notes


def test_an_update_finds_its_account_in_any_spelling() -> None:
    plan = orders.update(
        case(OrderType.UPDATE, account=" A_One", order={"limits": {"cpu": 2}}), RULES, STANDING
    )
    assert plan.account == "a_one"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no backend id": ({"account": ""}, "has no backend id in Waldur: its account is not known"),
    "no such account": ({"account": "a_two"}, "account a_two is not on the cluster test"),
    "bad limit": ({"account": "a_one", "order": {"limits": {"cpu": -1}}}, "limit of cpu is -1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_update_that_can_never_be_is_refused(what: str) -> None:
    facts, words = REFUSED[what]
    with pytest.raises(PlanRefused, match=words):
        orders.update(case(OrderType.UPDATE, **facts), RULES, STANDING)


@pytest.mark.parametrize("part", [Part.ACCOUNTS, Part.TRES])
def test_an_update_waits_for_what_was_not_read_and_is_not_refused(part: Part) -> None:
    wanted = case(OrderType.UPDATE, account="a_one", order={"limits": {"cpu": 2}})
    with pytest.raises(BackendUnavailable, match=part.value):
        orders.update(wanted, RULES, without(STANDING, part))


@pytest.mark.parametrize("part", [Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS, Part.JOBS, Part.QOS])
def test_an_update_needs_no_other_part(part: Part) -> None:
    wanted = case(OrderType.UPDATE, account="a_one", order={"limits": {"cpu": 2}})
    assert orders.update(wanted, RULES, without(STANDING, part)) == orders.update(wanted, RULES, STANDING)
